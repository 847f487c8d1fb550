-- @kind credit
-- @doc On-policy distillation: each trained token gets how much likelier the teacher finds it than the policy that
--   sampled it.
-- @formula A_t = coef * (teacher logprob - rollout logprob)
-- @source NeMo RL, slime, ROLL (on-policy distillation)
-- @param coef double = 1 : what the difference is multiplied with
-- @param logprob_signal string = teacher_logprob : signal with the teacher's logprobs
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
WITH listed AS (
    SELECT run_id, call_id, 0 AS place, "values" AS numbers
    FROM token_signals
    WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
    UNION ALL
    SELECT run_id, call_id, 1 AS place, CAST(output_logprobs AS DOUBLE[]) AS numbers
    FROM calls
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
