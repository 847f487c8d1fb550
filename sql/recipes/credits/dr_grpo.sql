-- @kind credit
-- @doc Group-relative advantage without the division by the standard deviation. A rollout without a reward is no member of its
--   group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = r - mean, over the distinct rollouts of the group; 0 for a singleton
-- @source arXiv 2503.20783 (Dr. GRPO)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    count(value) OVER (PARTITION BY run_id, $group_key) AS baseline_count
FROM reward
WHERE call_id IS NULL
