-- @kind credit
-- @doc On-policy distillation: each trained token gets how much likelier the teacher finds it than the policy that
--   sampled it.
-- @formula A_t = coef * (teacher logprob - logprob of the policy)
-- @source NeMo RL, slime, ROLL (on-policy distillation)
-- @param coef double = 1 : what the difference is multiplied with
-- @param logprob_signal string = teacher_logprob : signal with the teacher's logprobs
-- @param student_signal string = null : signal with the logprobs of the policy that learns, as NeMo RL and slime take them; null =
--   those that were sampled with
-- @param producer string = null : producer of the signal; null = the only one
-- @check there is no signal {name}: import it into token_signals
--   SELECT $logprob_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $logprob_signal AS name
--   FROM token_signals
--   WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @check there is no signal {name}: import it into token_signals
--   SELECT $student_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $student_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $student_signal IS NOT NULL AND found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $student_signal AS name
--   FROM token_signals
--   WHERE name = $student_signal AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @test how much likelier the teacher finds a token
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_logprobs": [-1], "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "teacher_logprob", "values": [-0.3068528194400547, null]}
--     {"rollout_id": "a", "call_id": "a1", "name": "teacher_logprob", "values": [-2.386294361119891]}
--   param coef=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.34657359027997264, null]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.6931471805599453]}
-- @test the policy that learns, not the one that sampled
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "teacher_logprob", "values": [-0.5, -2]}
--     {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1.5, -1]}
--   param student_signal=trainer_logprob
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1, -1]}
WITH listed AS (
    SELECT run_id, call_id, 0 AS place, "values" AS numbers
    FROM token_signals
    WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
    UNION ALL
    SELECT call.run_id, call.call_id, 1 AS place, CAST(call.output_logprobs AS DOUBLE[]) AS numbers
    FROM calls AS call
    JOIN (SELECT run_id, call_id FROM trajectories) AS path
        ON path.run_id = call.run_id AND path.call_id = call.call_id
    WHERE $student_signal IS NULL
    UNION ALL
    SELECT run_id, call_id, 1 AS place, "values" AS numbers
    FROM token_signals
    WHERE name = $student_signal AND ($producer IS NULL OR producer = $producer)
),
pairs AS (
    -- Side by side by sorting, so that no list waits in memory for its partner.
    SELECT
        run_id, call_id, place,
        numbers AS logprobs,
        lead(numbers) OVER (PARTITION BY run_id, call_id ORDER BY place) AS output_logprobs
    FROM listed
),
logged AS (
    SELECT path.*, pair.logprobs, pair.output_logprobs
    FROM trajectories AS path
    JOIN (SELECT DISTINCT run_id, rollout_id FROM reward) AS member
        ON member.run_id = path.run_id AND member.rollout_id = path.rollout_id
    LEFT JOIN (SELECT * FROM pairs WHERE place = 0) AS pair
        ON pair.run_id = path.run_id AND pair.call_id = path.call_id
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    array_scale(token_kl(logprobs, output_logprobs, token_mask, call_id), $coef) AS token_values
FROM logged
