-- @kind credit
-- @doc verl's opo: the reward less the mean of the group, each reward weighted with its trained tokens. The only row of
--   a group keeps its reward. A rollout without a reward is no member of its group and gets no credit; one without a
--   group has nothing to be compared with.
-- @formula A = r - sum(L * r) / sum(L) over the group, L = trained tokens (view rollout_rows); r for a single row
-- @source verl/trainer/ppo/core_algos.py at commit 1dda039b, compute_opo_outcome_advantage
-- @differs The only baseline of the catalog that is weighted by length. A rollout of several rows weighs its tokens once
--   either way; votes decide only who is alone.
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
-- @check rollout {rollout_id} of run {run_id} has a reward, but no trained token is known of it: import its calls
--   SELECT reward.run_id, reward.rollout_id
--   FROM reward
--   LEFT JOIN rollout_rows AS counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
--   WHERE reward.call_id IS NULL AND reward.value IS NOT NULL AND COALESCE(counted.trained_tokens, 0) = 0
--   ORDER BY reward.run_id, reward.rollout_id
--   LIMIT 1
WITH voted AS (
    SELECT
        reward.*,
        CASE WHEN $votes = 'row' THEN COALESCE(counted.merged_rows, 1) ELSE 1 END AS votes,
        counted.trained_tokens
    FROM reward
    LEFT JOIN rollout_rows AS counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
    WHERE reward.call_id IS NULL
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            opo(value, rollout_id, trained_tokens, singleton => 'value', votes => votes) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM voted
