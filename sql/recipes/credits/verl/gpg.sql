-- @kind credit
-- @doc verl's gpg: the reward less the group's mean, times the share of rows of the batch whose reward is not 0,
--   inverted. The only row of a group keeps its reward, times the same. A rollout without a reward is no member of
--   its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = alpha * (r - mean) / f_norm, alpha = rows of the batch / max(1, rows whose reward is not 0); alpha * r /
--   f_norm for a single row
-- @source verl/trainer/ppo/core_algos.py at commit 1dda039b, compute_gpg_outcome_advantage
-- @differs The only estimator whose scale depends on the rest of the batch by counting. With votes=row a rollout that
--   became several rows (one for each chain of exact extensions, view rollout_rows) counts once for each of them;
--   votes=rollout is the corrected form.
-- @param f_norm double = 1 : divides every advantage
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
WITH voted AS (
    SELECT
        reward.*,
        CASE WHEN $votes = 'row' THEN COALESCE(counted.merged_rows, 1) ELSE 1 END AS votes
    FROM reward
    LEFT JOIN rollout_rows AS counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
    WHERE reward.call_id IS NULL
),
shared AS (
    SELECT
        *,
        rollout_sum(CAST(CASE WHEN value IS NOT NULL THEN votes END AS DOUBLE), rollout_id) OVER (PARTITION BY run_id, $batch_key)
            / greatest(
                rollout_sum(CAST(CASE WHEN value IS NOT NULL AND value <> 0 THEN votes ELSE 0 END AS DOUBLE), rollout_id)
                    OVER (PARTITION BY run_id, $batch_key),
                1.0
            ) AS alpha
    FROM voted
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            alpha * dr_grpo(value, rollout_id, singleton => 'value', votes => votes) OVER (PARTITION BY run_id, $group_key) / $f_norm
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM shared
