-- @kind credit
-- @doc TRL's AsyncGRPOTrainer: reward less the group's mean, over the group's population standard deviation. A rollout
--   without a reward is no member of its group and gets no credit; one without a group has nothing to be compared
--   with.
-- @formula A = (r - mean) / (std + 1e-8), std with ddof 0; 0 for a singleton
-- @source trl/experimental/async_grpo
-- @differs ddof 0 and eps 1e-8, where trl/grpo has ddof 1 and eps 1e-4: a lone winner of four gets 1.73 here, 1.50 there.
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            grpo(value, rollout_id, ddof => 0, eps => 1e-8) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
