-- @kind credit
-- @doc verl's rloo_vectorized: the reward less the mean of the other rows of the group; 0 for the only row of a group.
--   A rollout without a reward is no member of its group and gets no credit; one without a group has nothing to be
--   compared with.
-- @formula A = (n * r - sum(r)) / (n - 1); 0 for a single row
-- @source verl/trainer/ppo/core_algos.py at commit 1dda039b, compute_rloo_vectorized_outcome_advantage
-- @differs Differs from verl/rloo in the singleton alone: 0 here, its reward there. With votes=row a rollout that became
--   several rows (one for each chain of exact extensions, view rollout_rows) counts once for each of them;
--   votes=rollout is the corrected form.
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
WITH voted AS (
    SELECT
        reward.*,
        CASE WHEN $votes = 'row' THEN COALESCE(counted.merged_rows, 1) ELSE 1 END AS votes
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
            rloo(value, rollout_id, votes => votes) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM voted
