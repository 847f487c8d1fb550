-- @kind credit
-- @doc rLLM's reinforce: the reward itself, without a baseline.
-- @formula A = r
-- @source rllm, trainer/algorithms/advantage.py and rl_algo.py
-- @differs The only credit without any baseline.
SELECT run_id, rollout_id, 'advantage' AS quantity, 'rollout' AS level, value, 'none' AS baseline_scope
FROM reward
WHERE call_id IS NULL
