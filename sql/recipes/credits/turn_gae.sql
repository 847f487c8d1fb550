-- @kind credit
-- @doc Generalized advantage estimation with a turn as the step. The reward of a call is its own, if it has one, and at
--   the end of a trajectory (view trajectories) that of the rollout. The value of a turn is the critic's at its first
--   output token.
-- @formula A_i = d_i + gamma * lam * A_next, d_i = r_i + gamma * V_next - V_i
-- @source arXiv 1506.02438
-- @param gamma double = 1 : discount of one turn
-- @param lam double = 1 : weight of later differences
-- @param value_signal string = value : signal with the critic's value of each token
-- @param producer string = null : producer of the signals; null = the only one
-- @check there is no signal {name}: import it into token_signals
--   SELECT $value_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $value_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $value_signal AS name
--   FROM token_signals
--   WHERE name = $value_signal AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @test the value of a turn is that of its first token
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1, 9]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0]}
--     {"rollout_id": "b", "call_id": "b1", "name": "value", "values": [2, 9]}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "value": 1.5} {"rollout_id": "a", "call_id": "a1", "value": 0.0}
--     {"rollout_id": "b", "call_id": "b0", "value": 2.0} {"rollout_id": "b", "call_id": "b1", "value": 2.0}
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
valued AS (
    SELECT steps.*, signal.first_value AS critic
    FROM steps
    LEFT JOIN (
        SELECT run_id, call_id, "values"[1] AS first_value
        FROM token_signals
        WHERE name = $value_signal AND ($producer IS NULL OR producer = $producer)
    ) AS signal ON signal.run_id = steps.run_id AND signal.call_id = steps.call_id
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'call' AS level,
    turn_gae(reward, critic, call_id, turn_index, gamma => $gamma, lam => $lam)
        OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS value
FROM valued
