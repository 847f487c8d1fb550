-- @kind credit
-- @doc Importance weights as in verl's rollout correction, by token or by trajectory.
-- @formula w = min(exp(d), threshold); with a threshold lower_upper 0 outside; normalized: over their mean in the step
-- @source verl/trainer/ppo/rollout_corr_helper.py
-- @differs importance_weights has the geometric mean, clipping and a veto too
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
-- @test ratios 2 and 1/4, truncated
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_logprobs": [-1], "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-0.3068528194400547, null]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-2.386294361119891]}
--   param rollout_is_threshold=1.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.5, null]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.25]}
-- @test over their mean 1.125
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_logprobs": [-1], "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-0.3068528194400547, null]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-2.386294361119891]}
--   param rollout_is_batch_normalize=true
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.7777777777777777, null]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.2222222222222222]}
WITH listed AS (
    SELECT run_id, call_id, 0 AS place, "values" AS numbers
    FROM token_signals
    WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
    UNION ALL
    SELECT call.run_id, call.call_id, 1 AS place, CAST(call.output_logprobs AS DOUBLE[]) AS numbers
    FROM calls AS call
    JOIN (SELECT run_id, call_id FROM trajectories) AS path
        ON path.run_id = call.run_id AND path.call_id = call.call_id
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
