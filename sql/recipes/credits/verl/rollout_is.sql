-- @kind credit
-- @doc Importance weights as in verl's rollout correction, by token or by trajectory.
-- @formula w = min(exp(d), threshold); with a threshold lower_upper 0 outside; normalized: over their mean in the step
-- @source verl/trainer/ppo/rollout_corr_helper.py
-- @param rollout_is string = token : token or sequence
-- @param rollout_is_threshold string = 2.0 : an upper bound, or lower_upper as in 0.5_2.0
-- @param rollout_is_batch_normalize boolean = false : whether the weights of a step are divided by their mean
-- @param logprob_signal string = trainer_logprob : signal with the logprobs of the policy that trains
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
),
weighted AS (
    SELECT
        run_id, step, rollout_id, trajectory_id, call_id, token_mask,
        importance_weights(
            logprobs, output_logprobs, token_mask, call_id, level => $rollout_is,
            mode => CASE WHEN strpos($rollout_is_threshold, '_') > 0 THEN 'mask' ELSE 'truncate' END,
            lower => CASE
                WHEN strpos($rollout_is_threshold, '_') > 0 THEN CAST(split_part($rollout_is_threshold, '_', 1) AS DOUBLE)
            END,
            upper => CAST(split_part($rollout_is_threshold, '_', -1) AS DOUBLE)
        ) OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS weights
    FROM logged
),
summed AS (
    SELECT run_id, step, sum(moments['count']) AS tokens, sum(moments['sum']) AS total,
        exact_avg(moments['sum'] / (moments['count'] + 1e-8)) FILTER (WHERE moments['count'] > 0) AS mean_of_sequences
    FROM (
        SELECT run_id, step, token_moments(weights, token_mask, call_id) AS moments
        FROM weighted
        GROUP BY run_id, step, rollout_id, trajectory_id
    )
    GROUP BY run_id, step
),
factors AS (
    SELECT
        run_id, step,
        CASE
            WHEN NOT $rollout_is_batch_normalize THEN 1.0
            WHEN $rollout_is = 'sequence' THEN mean_of_sequences
            ELSE total / (tokens + 1e-8)
        END AS factor
    FROM summed
)
SELECT
    weighted.run_id,
    weighted.rollout_id,
    weighted.call_id,
    'weight' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    array_scale(weighted.weights, 1.0 / CASE WHEN factors.factor > 1e-8 THEN factors.factor ELSE 1.0 END) AS token_values
FROM weighted
JOIN factors ON factors.run_id = weighted.run_id AND factors.step IS NOT DISTINCT FROM weighted.step
