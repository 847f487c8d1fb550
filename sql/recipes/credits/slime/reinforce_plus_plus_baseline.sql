-- @kind credit
-- @doc slime's reinforce_plus_plus_baseline: reward less the group's mean, on every token; whitening over the tokens
--   of the step is an option. A rollout without a reward is no member of its group and
--   gets no credit; one without a group has nothing to be compared with.
-- @formula A = r - mean; 0 for a single row; r without rewards_normalization
-- @source slime at commit 624b824a, ray/rollout.py (_post_process_rewards), utils/ppo_utils.py
--   (get_reinforce_plus_plus_baseline_advantages)
-- @differs No whitening (verl, NeMo-RL, OpenRLHF whiten over tokens). Quirk: where the rows of a batch are not
--   n_samples_per_prompt * rollout_batch_size (fan-out, ragged groups), slime takes the whole batch for one group;
--   that needs both parameters, and votes=rollout keeps the groups. Sibling rows count each. With votes=row a
--   rollout that became several rows (one for each chain of exact extensions, view rollout_rows) counts once for
--   each of them; votes=rollout is the corrected form.
-- @param rewards_normalization boolean = true : whether the mean is subtracted at all
-- @param n_samples_per_prompt long = null : samples of a prompt; null = as many as there are
-- @param rollout_batch_size long = null : prompts of a batch; null = as many as there are
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @param normalize_advantages boolean = false : whether advantages are whitened over the tokens of the step; true
--   makes the credit one of level token
-- @param kl_coef double = 0 : taken off the advantage of each token for each unit of the divergence; not 0 makes the
--   credit one of level token
-- @param kl_loss_type string = k1 : estimator of the divergence from the reference: k1, k2, k3 or low_var_kl
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where kl_coef is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where kl_coef is not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
-- @check kl_loss_type is k1, k2, k3 or low_var_kl, not {given}
--   SELECT $kl_loss_type AS given WHERE $kl_loss_type IS NULL OR $kl_loss_type NOT IN ('k1', 'k2', 'k3', 'low_var_kl')
-- @check there is no signal {name}: import it into token_signals
--   SELECT $logprob_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $kl_coef <> 0 AND found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $logprob_signal AS name
--   FROM token_signals
--   WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @check there is no signal {name}: import it into token_signals
--   SELECT $reference_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $reference_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $kl_coef <> 0 AND found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $reference_signal AS name
--   FROM token_signals
--   WHERE name = $reference_signal AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 0.75} {"rollout_id": "b", "value": -0.25} {"rollout_id": "c", "value": -0.25}
--     {"rollout_id": "d", "value": -0.25} {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0}
--     {"rollout_id": "h", "value": 0}
-- @test the rows of a rollout vote unless rollouts do
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a2", "rollout_id": "a", "call_index": 2, "prompt_len": 1, "output_len": 2}
--   expect {"rollout_id": "a", "value": 0.25} {"rollout_id": "b", "value": -0.75}
-- @test rollouts vote
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a2", "rollout_id": "a", "call_index": 2, "prompt_len": 1, "output_len": 2}
--   param votes=rollout
--   expect {"rollout_id": "a", "value": 0.5} {"rollout_id": "b", "value": -0.5}
-- @test a divergence of each token
--   reward {"rollout_id": "a", "group_id": "g", "value": 4} {"rollout_id": "b", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1.0, -2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-0.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-1.0]}
--     {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5, -1.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "reference_logprob", "values": [-0.25]}
--     {"rollout_id": "b", "call_id": "b0", "name": "reference_logprob", "values": [-2.0]}
--   param kl_coef=0.5
--   param kl_loss_type=k3
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.44673467, 1.140859086]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [1.482987292]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [-1.683939721]}
-- @test whitened over four tokens
--   reward {"rollout_id": "a", "group_id": "g", "value": 4} {"rollout_id": "b", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1.0, -2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-0.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-1.0]}
--     {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5, -1.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "reference_logprob", "values": [-0.25]}
--     {"rollout_id": "b", "call_id": "b0", "name": "reference_logprob", "values": [-2.0]}
--   param normalize_advantages=true
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.4999999989, 0.4999999989]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.4999999989]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [-1.499999997]}
WITH voted AS (
    SELECT
        reward.*,
        CASE WHEN $votes = 'row' THEN COALESCE(counted.merged_rows, 1) ELSE 1 END AS votes
    FROM reward
    LEFT JOIN rollout_rows AS counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
    WHERE reward.call_id IS NULL
),
flattened AS (
    SELECT
        *,
        CAST(rollout_sum(CAST(votes AS DOUBLE), rollout_id) OVER (PARTITION BY run_id, $batch_key) AS BIGINT) AS batch_rows
    FROM voted
),
keyed AS (
    SELECT
        *,
        CASE
            WHEN $votes = 'row' AND batch_rows <> $n_samples_per_prompt * $rollout_batch_size
            THEN 'batch'
            ELSE 'group'
        END AS baseline_scope,
        CASE
            WHEN $votes = 'row' AND batch_rows <> $n_samples_per_prompt * $rollout_batch_size
            THEN CAST($batch_key AS VARCHAR)
            ELSE CAST($group_key AS VARCHAR)
        END AS baseline_key
    FROM flattened
),
of_rollouts AS (
    SELECT
        run_id,
        rollout_id,
        CASE
            WHEN baseline_key IS NULL THEN NULL
            WHEN NOT $rewards_normalization THEN value
            ELSE dr_grpo(value, rollout_id, votes => votes) OVER (PARTITION BY run_id, baseline_scope, baseline_key)
        END AS advantage,
        baseline_scope,
        baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, baseline_scope, baseline_key) AS INTEGER) AS baseline_count
    FROM keyed
),
calls_of_rollouts AS (
    SELECT path.*, whole.advantage, whole.baseline_scope, whole.baseline_key, whole.baseline_count
    FROM trajectories AS path
    JOIN of_rollouts AS whole ON whole.run_id = path.run_id AND whole.rollout_id = path.rollout_id
    WHERE NOT ($kl_coef = 0 AND NOT $normalize_advantages)
),
listed AS (
    SELECT DISTINCT run_id, call_id, 0 AS place, CAST(NULL AS DOUBLE[]) AS numbers
    FROM calls
    UNION ALL
    SELECT
        run_id,
        call_id,
        CASE
            WHEN name = $logprob_signal THEN 1
            WHEN name = $reference_signal THEN 2
        END AS place,
        "values" AS numbers
    FROM token_signals
    WHERE ($producer IS NULL OR producer = $producer)
        AND (
            (name = $logprob_signal AND $kl_coef <> 0)
            OR (name = $reference_signal AND $kl_coef <> 0)
        )
),
ordered AS (
    -- Side by side by sorting, so that no list waits in memory for its partner.
    SELECT
        run_id,
        call_id,
        place,
        lead(place, 1) OVER calls AS place_1,
        lead(numbers, 1) OVER calls AS numbers_1,
        lead(place, 2) OVER calls AS place_2,
        lead(numbers, 2) OVER calls AS numbers_2
    FROM listed
    WINDOW calls AS (PARTITION BY run_id, call_id ORDER BY place)
),
signals AS (
    SELECT
        run_id,
        call_id,
        CASE WHEN place_1 = 1 THEN numbers_1 END AS logprobs,
        CASE
            WHEN place_1 = 2 THEN numbers_1
            WHEN place_2 = 2 THEN numbers_2
        END AS reference_logprobs
    FROM ordered
    WHERE place = 0
),
referred AS (
    SELECT rewarded.*, signal.logprobs, signal.reference_logprobs
    FROM calls_of_rollouts AS rewarded
    LEFT JOIN signals AS signal ON signal.run_id = rewarded.run_id AND signal.call_id = rewarded.call_id
),
charged AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask, baseline_scope, baseline_key, baseline_count,
        CASE
            WHEN $kl_coef = 0 THEN token_fill(advantage, token_mask)
            ELSE token_sum(
                token_fill(advantage, token_mask),
                token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $kl_loss_type,
                        log_bound => NULL, bound => CASE WHEN $kl_loss_type = 'low_var_kl' THEN 10.0 END, unselected => 'zero'
                    ),
                call_id,
                weight => 0.0 - $kl_coef
            )
        END AS numbers
    FROM referred
),
batch AS (
    SELECT run_id, step, token_moments(numbers, token_mask, call_id) AS moments
    FROM charged
    GROUP BY run_id, step
)
SELECT
    run_id,
    rollout_id,
    CAST(NULL AS VARCHAR) AS call_id,
    'advantage' AS quantity,
    'rollout' AS level,
    advantage AS value,
    CAST(NULL AS DOUBLE[]) AS token_values,
    baseline_scope,
    baseline_key,
    baseline_count
FROM of_rollouts
WHERE $kl_coef = 0 AND NOT $normalize_advantages
UNION ALL
SELECT
    one.run_id,
    one.rollout_id,
    one.call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    CASE
        WHEN $normalize_advantages THEN whiten(one.numbers, one.token_mask, batch.moments, one.call_id)
        ELSE one.numbers
    END AS token_values,
    one.baseline_scope,
    one.baseline_key,
    one.baseline_count
FROM charged AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
