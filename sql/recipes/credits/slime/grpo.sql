-- @kind credit
-- @doc slime's grpo (and gspo): reward less the group's mean, over its standard deviation. slime has NaN for a
--   singleton, whose standard deviation it divides by; a credit is never NaN here, so it is null. A rollout without
--   a reward is no member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = (r - mean) / (std + 1e-6), std with ddof 1; r - mean without grpo_std_normalization; null (slime: NaN) for a
--   single row, 0 without division; r without rewards_normalization
-- @source slime, ray/rollout.py, _post_process_rewards
-- @differs Quirk: where the rows of a batch are not n_samples_per_prompt * rollout_batch_size (fan-out, ragged groups),
--   slime takes the whole batch for one group; that needs both parameters, and votes=rollout keeps the groups.
--   Sibling rows count each. With votes=row a rollout that became several rows (one for each chain of exact
--   extensions, view rollout_rows) counts once for each of them; votes=rollout is the corrected form.
-- @param grpo_std_normalization boolean = true : false does not divide
-- @param rewards_normalization boolean = true : whether the mean is subtracted at all
-- @param n_samples_per_prompt long = null : samples of a prompt; null = as many as there are
-- @param rollout_batch_size long = null : prompts of a batch; null = as many as there are
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.499997000006} {"rollout_id": "b", "value": -0.499999000002}
--     {"rollout_id": "c", "value": -0.499999000002} {"rollout_id": "d", "value": -0.499999000002}
--     {"rollout_id": "e", "value": null} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
-- @test the rows of a rollout vote unless rollouts do
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a2", "rollout_id": "a", "call_index": 2, "prompt_len": 1, "output_len": 2}
--   expect {"rollout_id": "a", "value": 0.499999000002} {"rollout_id": "b", "value": -1.499997000006}
-- @test rollouts vote
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a2", "rollout_id": "a", "call_index": 2, "prompt_len": 1, "output_len": 2}
--   param votes=rollout
--   expect {"rollout_id": "a", "value": 0.7071057811879616} {"rollout_id": "b", "value": -0.7071057811879616}
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
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN baseline_key IS NULL THEN NULL
        WHEN NOT $rewards_normalization THEN value
        WHEN $grpo_std_normalization THEN grpo(value, rollout_id, singleton => 'null', votes => votes) OVER (PARTITION BY run_id, baseline_scope, baseline_key)
        ELSE dr_grpo(value, rollout_id, votes => votes) OVER (PARTITION BY run_id, baseline_scope, baseline_key)
    END AS value,
    baseline_scope,
    baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, baseline_scope, baseline_key) AS INTEGER) AS baseline_count
FROM keyed
