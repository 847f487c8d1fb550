-- @kind credit
-- @doc Leave-one-out advantage: the reward less the mean of the others in the group. A rollout without a reward is no member of
--   its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = r - mean of the others = n / (n - 1) * (r - mean), over the distinct rollouts of the group; 0 for a singleton
-- @source arXiv 2402.14740 (RLOO)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN rloo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    count(value) OVER (PARTITION BY run_id, $group_key) AS baseline_count
FROM reward
WHERE call_id IS NULL
