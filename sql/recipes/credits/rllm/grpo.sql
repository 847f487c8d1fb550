-- @kind credit
-- @doc rLLM's grpo: reward less the group's mean, over the group's population standard deviation. A singleton keeps its
--   reward, over 1 + 1e-6. A rollout without a reward is no member of its group and gets no credit; one without a
--   group has nothing to be compared with.
-- @formula A = (r - mean) / (std + 1e-6), std with ddof 0; r - mean without norm_adv_by_std_in_grpo; r / (1 + 1e-6) for a
--   singleton
-- @source rllm, trainer/algorithms/advantage.py and rl_algo.py
-- @differs ddof 0 (verl/grpo, which it mirrors otherwise: 1): a lone winner of four gets 1.73 here, 1.5 there.
-- @param norm_adv_by_std_in_grpo boolean = true : false does not divide
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.732046807578115} {"rollout_id": "b", "value": -0.5773489358593717}
--     {"rollout_id": "c", "value": -0.5773489358593717} {"rollout_id": "d", "value": -0.5773489358593717}
--     {"rollout_id": "e", "value": 0.49999950000050003} {"rollout_id": "f", "value": 0}
--     {"rollout_id": "h", "value": 0}
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            CASE
                WHEN $norm_adv_by_std_in_grpo THEN grpo(value, rollout_id, ddof => 0, singleton => 'unit_std') OVER (PARTITION BY run_id, $group_key)
                ELSE dr_grpo(value, rollout_id, singleton => 'value') OVER (PARTITION BY run_id, $group_key)
            END
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
