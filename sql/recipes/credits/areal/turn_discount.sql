-- @kind credit
-- @doc Turn discount as in AReaL with a row for each call: the discounted reward from each call on, normalized over the
--   rows of the group. The reward of a call is its own, if it has one, and at the end of a trajectory (view
--   trajectories) that of the rollout.
-- @formula R_i = r_i + turn_discount * R_next; A = (R - mean) / (std + 1e-5) over the calls of the group; 0 for a
--   singleton
-- @source AReaL (turn_discount, normalization by group)
-- @differs roll/step_reinforce has eps 1e-6 and other scopes
-- @param turn_discount double = 1 : discount of one call
-- @test over the deviation 1.25 of four calls
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param turn_discount=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "value": 0.0999992000064}
--     {"rollout_id": "a", "call_id": "a1", "value": -1.09999120007}
--     {"rollout_id": "b", "call_id": "b0", "value": -0.299997600019}
--     {"rollout_id": "b", "call_id": "b1", "value": 1.29998960008}
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
),
discounted AS (
    SELECT
        *,
        turn_returns(reward, call_id, gamma => $turn_discount)
            OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS step_return,
        exact_sum(reward) OVER (PARTITION BY run_id, rollout_id, trajectory_id) AS episode_return
    FROM steps
),
grouped AS (
    SELECT
        discounted.*,
        member.group_key,
        discounted.rollout_id || '/' || discounted.trajectory_id AS trajectory,
        discounted.rollout_id || '/' || discounted.call_id AS call
    FROM discounted
    JOIN (
        SELECT DISTINCT run_id, rollout_id, CAST($group_key AS VARCHAR) AS group_key FROM reward
    ) AS member
        ON member.run_id = discounted.run_id AND member.rollout_id = discounted.rollout_id
    WHERE member.group_key IS NOT NULL
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'call' AS level,
    grpo(step_return, call, eps => 1e-5) OVER (PARTITION BY run_id, group_key) AS value,
    'group' AS baseline_scope,
    group_key AS baseline_key
FROM grouped
