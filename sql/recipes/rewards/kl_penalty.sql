-- @kind reward
-- @doc A reward less a divergence from the reference model, summed over the rollout's trained tokens. A rollout with a trained
--   token for which either logprob is missing has no reward, since its sum is not known. A NaN or infinite reward is an error.
-- @formula r' = r - beta * sum over t of k(d_t), d = reference - logprob: k1 -d, abs |d|, k2 d^2 / 2, k3 exp(d) - d - 1 with d within +-20 and k3 within +-10
-- @source TRL RLOO (sequence k1, beta 0.05); estimators and clamps of verl's kl_penalty (kl/k1, abs, mse/k2, low_var_kl/k3; a straight-through form ends in + and has the value of the plain one); http://joschu.net/blog/kl-approx.html
-- @differs OpenRLHF, AReaL and verl take the term off token by token: that is a credit of level token (token rewards under returns or gae)
-- @param beta double = 0.05 : of the sum
-- @param estimator string = k1 : k1, abs, k2 or k3; also kl, mse, low_var_kl, and each with + behind it
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs
-- @param logprob_signal string = null : signal with the policy's; null = those that were sampled with
-- @param producer string = null : producer of the signals; null = the only one
-- @check the estimator is k1, abs, k2 or k3, not {estimator}
--   SELECT $estimator AS estimator
--   WHERE COALESCE(trim(TRAILING '+' FROM $estimator), '') NOT IN ('kl', 'k1', 'abs', 'mse', 'k2', 'low_var_kl', 'k3')
-- @check there is no signal {name}: import it into token_signals
--   SELECT $reference_signal AS name
--   FROM (SELECT count(*) AS found FROM token_signals WHERE name = $reference_signal AND ($producer IS NULL OR producer = $producer))
--   WHERE found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, name
--   FROM token_signals
--   WHERE name IN ($reference_signal, COALESCE($logprob_signal, $reference_signal)) AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id, name
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id, name
--   LIMIT 1
-- @check signal {name} of call {call_id} has {count} values for {output_len} output tokens
--   SELECT signal.name, call.call_id, CAST(array_length(signal."values") AS VARCHAR) AS count, call.output_len
--   FROM token_signals AS signal
--   JOIN calls AS call ON call.run_id = signal.run_id AND call.call_id = signal.call_id
--   WHERE signal.name IN ($reference_signal, COALESCE($logprob_signal, $reference_signal))
--       AND ($producer IS NULL OR producer = $producer)
--       AND COALESCE(array_length(signal."values"), 0) <> call.output_len
--   ORDER BY call.run_id, call.call_id, signal.name
--   LIMIT 1
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test k1 over two trained tokens; a masked one and a judge's do not count
--   reward {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 1} {"rollout_id": "c", "value": null}
--     {"rollout_id": "d", "value": 1}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "output_len": 3, "output_logprobs": [-1, -2, null],
--      "sampled_mask": [true, true, false]}
--     {"rollout_id": "a", "call_id": "a1", "call_index": 1, "output_len": 1, "output_logprobs": [-9], "kind": "judge"}
--     {"rollout_id": "b", "call_id": "b0", "call_index": 0, "output_len": 2, "output_logprobs": [-1, -1]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5, -1, -7]}
--     {"rollout_id": "b", "call_id": "b0", "name": "reference_logprob", "values": [-1, null]}
--   param beta=0.5
--   expect {"rollout_id": "a", "value": 1.25} {"rollout_id": "b", "value": null, "exclusion_reason": "no_logprob"}
--   expect {"rollout_id": "c", "value": null} {"rollout_id": "d", "value": 1}
-- @test k2 against the trainer's logprobs: d is -0.5 and 1
--   reward {"rollout_id": "a", "value": 1}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "output_len": 2, "output_logprobs": [-9, -9]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5, -1]}
--     {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1, -2]}
--   param beta=1
--   param estimator=k2+
--   param logprob_signal=trainer_logprob
--   expect {"rollout_id": "a", "value": 0.375}
-- @test k3: e^-0.5 + 0.5 - 1 and, for d = 5, a bound of 10
--   reward {"rollout_id": "a", "value": 1}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "output_len": 2, "output_logprobs": [-1, -6]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5, -1]}
--   param beta=1
--   param estimator=low_var_kl
--   expect {"rollout_id": "a", "value": -9.106530659712633}
-- @test a signal of another length
--   reward {"rollout_id": "a", "value": 1}
--   calls {"rollout_id": "a", "call_id": "a0", "output_len": 2, "output_logprobs": [-1, -6]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5]}
--   error signal reference_logprob of call a0 has 1 values for 2 output tokens
WITH listed AS (
    SELECT
        run_id, rollout_id, call_id, 0 AS place, output_len, sampled_mask, action_mask,
        CAST(output_logprobs AS DOUBLE[]) AS numbers
    FROM calls
    WHERE COALESCE(is_trainable, COALESCE(kind, 'act') IN ('act', 'compact')) AND output_len > 0
    UNION ALL
    SELECT
        run_id, CAST(NULL AS VARCHAR), call_id, CASE WHEN name = $reference_signal THEN 1 ELSE 2 END, NULL, NULL, NULL,
        "values"
    FROM token_signals
    WHERE (name = $reference_signal OR name = $logprob_signal) AND ($producer IS NULL OR producer = $producer)
),
pairs AS (
    -- Side by side by sorting, so that no list waits in memory for its partner.
    SELECT
        run_id, rollout_id, place, output_len, sampled_mask, action_mask, numbers,
        lead(place) OVER (PARTITION BY run_id, call_id ORDER BY place) AS next_place,
        lead(numbers) OVER (PARTITION BY run_id, call_id ORDER BY place) AS next_numbers,
        lead(numbers, 2) OVER (PARTITION BY run_id, call_id ORDER BY place) AS last_numbers
    FROM listed
),
tokens AS (
    SELECT
        run_id,
        rollout_id,
        unnest(range(0, output_len)) AS position,
        unnest(sampled_mask) AS is_sampled,
        unnest(action_mask) AS is_action,
        unnest(CASE
            WHEN $logprob_signal IS NULL THEN numbers
            WHEN next_place = 1 THEN last_numbers
            ELSE next_numbers
        END) AS logprob,
        unnest(CASE WHEN next_place = 1 THEN next_numbers END) AS reference
    FROM pairs
    WHERE place = 0
),
differences AS (
    SELECT run_id, rollout_id, reference - logprob AS d
    FROM tokens
    WHERE COALESCE(is_sampled, true) AND COALESCE(is_action, true)
),
estimated AS (
    SELECT
        run_id,
        rollout_id,
        CASE trim(TRAILING '+' FROM $estimator)
            WHEN 'kl' THEN 0.0 - d
            WHEN 'k1' THEN 0.0 - d
            WHEN 'abs' THEN abs(d)
            WHEN 'mse' THEN d * d / 2.0
            WHEN 'k2' THEN d * d / 2.0
            ELSE
                CASE
                    WHEN d IS NULL THEN NULL
                    ELSE least(10.0, exp(least(20.0, greatest(-20.0, d))) - least(20.0, greatest(-20.0, d)) - 1.0)
                END
        END AS k
    FROM differences
),
summed AS (
    SELECT run_id, rollout_id, sum(k) AS divergence, count(*) - count(k) AS unknown_count
    FROM estimated
    GROUP BY run_id, rollout_id
)
SELECT
    reward.run_id,
    reward.rollout_id,
    reward.call_id,
    CASE
        WHEN COALESCE(summed.unknown_count, 0) = 0 AND NOT isnan(COALESCE(summed.divergence, 0.0))
        THEN reward.value - $beta * COALESCE(summed.divergence, 0.0)
    END AS value,
    CASE
        WHEN reward.value IS NULL THEN reward.exclusion_reason
        WHEN summed.unknown_count > 0 OR isnan(summed.divergence) THEN 'no_logprob'
    END AS exclusion_reason,
    reward.components,
    reward.score_ids
FROM reward
LEFT JOIN summed ON summed.run_id = reward.run_id AND summed.rollout_id = reward.rollout_id
