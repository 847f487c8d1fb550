-- @kind credit
-- @doc The discounted reward from each turn on. The reward of a call is its own, if it has one, and at the end of a
--   trajectory (view trajectories) that of the rollout. Neighboring calls of one turn_index are one turn.
-- @formula R_i = r_i + gamma * R_next
-- @source AReaL (turn discount)
-- @param gamma double = 1 : discount of one turn
-- @test rewards of calls, and of the rollout at the end
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "value": 2.5} {"rollout_id": "a", "call_id": "a1", "value": 1.0}
--     {"rollout_id": "b", "call_id": "b0", "value": 2.0} {"rollout_id": "b", "call_id": "b1", "value": 4.0}
WITH steps AS (
    SELECT
        *,
        earned + CASE
            WHEN row_number() OVER (
                PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index DESC, call_id DESC
            ) = 1 THEN outcome
            ELSE 0.0
        END AS reward
    FROM rewarded_calls
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'return' AS quantity,
    'call' AS level,
    turn_returns(reward, call_id, turn_index, gamma => $gamma)
        OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS value
FROM steps
