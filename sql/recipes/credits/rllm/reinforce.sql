-- @kind credit
-- @doc rLLM's reinforce: the reward itself, without a baseline.
-- @formula A = r
-- @source rllm, trainer/algorithms/advantage.py and rl_algo.py
-- @differs The only credit without any baseline.
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 0} {"rollout_id": "c", "value": 0}
--     {"rollout_id": "d", "value": 0} {"rollout_id": "e", "value": 0.5} {"rollout_id": "f", "value": 0.3}
--     {"rollout_id": "h", "value": 0.3}
SELECT run_id, rollout_id, 'advantage' AS quantity, 'rollout' AS level, value, 'none' AS baseline_scope
FROM reward
WHERE call_id IS NULL
