-- @kind credit
-- @doc rLLM's prpo: the reward less the batch's mean, over the batch's population standard deviation; groups do not
--   matter.
-- @formula A = (r - mean) / (std + 1e-6) over the batch, std with ddof 0
-- @source rllm, trainer/algorithms/advantage.py and rl_algo.py
-- @differs rllm/grpo with the batch for its group.
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 2.070621799102984} {"rollout_id": "b", "value": -0.8874093424727073}
--     {"rollout_id": "c", "value": -0.8874093424727073} {"rollout_id": "d", "value": -0.8874093424727073}
--     {"rollout_id": "e", "value": 0.5916062283151383} {"rollout_id": "f", "value": 0}
--     {"rollout_id": "h", "value": 0}
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
