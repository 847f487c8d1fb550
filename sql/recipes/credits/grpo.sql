-- @kind credit
-- @doc Group-relative advantage: the reward less the group's mean, over the group's standard deviation. A rollout without a
--   reward is no member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = (r - mean) / (std + eps), over the distinct rollouts of the group; 0 for a singleton and at zero variance
-- @source arXiv 2402.03300 (GRPO)
-- @param eps double = 1e-6 : added to the standard deviation
-- @param ddof long = 1 : 1 divides the variance by n - 1, 0 by n
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN grpo(value, rollout_id, eps => $eps, ddof => $ddof) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    count(value) OVER (PARTITION BY run_id, $group_key) AS baseline_count
FROM reward
WHERE call_id IS NULL
