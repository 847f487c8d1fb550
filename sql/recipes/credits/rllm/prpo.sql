-- @kind credit
-- @doc rLLM's prpo: the reward less the batch's mean, over the batch's population standard deviation; groups do not
--   matter.
-- @formula A = (r - mean) / (std + 1e-6) over the batch, std with ddof 0
-- @source rllm, trainer/algorithms/advantage.py and rl_algo.py
-- @differs rllm/grpo with the batch for its group.
-- @param batch_key expression = step : expression over rollouts that names the batch
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN value IS NOT NULL
        THEN
            grpo(value, rollout_id, ddof => 0) OVER (PARTITION BY run_id, $batch_key)
    END AS value,
    'batch' AS baseline_scope,
    CAST($batch_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $batch_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
