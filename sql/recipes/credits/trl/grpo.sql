-- @kind credit
-- @doc TRL's GRPOTrainer: reward less the group's mean, over the standard deviation of the group or of the batch. A
--   rollout without a reward leaves the statistics but keeps its tokens: its advantage is 0, and its tokens stay in
--   the denominator of the loss.
-- @formula A = (r - mean) / (std + 1e-4), std with ddof 1 over the group (scale_rewards=group) or the batch (batch), or no
--   division (none); 0 for a singleton
-- @source trl/trainer/grpo_trainer.py (scale_rewards; unscorable rows)
-- @differs eps 1e-4 (verl, SkyRL, slime, ROLL: 1e-6; OpenRLHF: 1e-9; AReaL: 1e-5). A missing reward is 0 credit, not none;
--   unscored=null is the corrected form.
-- @param scale_rewards string = group : what divides: group, batch or none
-- @param unscored string = zero : credit of a rollout without a reward: zero as TRL, whose tokens then count in the loss,
--   or null
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check scale_rewards is {given}: it must be group, batch or none
--   SELECT $scale_rewards AS given WHERE $scale_rewards IS NULL OR $scale_rewards NOT IN ('group', 'batch', 'none')
-- @check unscored is {given}: it must be zero or null
--   SELECT COALESCE($unscored, 'null') AS given WHERE $unscored NOT IN ('zero')
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.4997000599880024} {"rollout_id": "b", "value": -0.4999000199960008}
--     {"rollout_id": "c", "value": -0.4999000199960008} {"rollout_id": "d", "value": -0.4999000199960008}
--     {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            CASE
                WHEN value IS NULL AND $unscored = 'zero' THEN 0.0
                WHEN $scale_rewards = 'group' THEN grpo(value, rollout_id, eps => 1e-4) OVER (PARTITION BY run_id, $group_key)
                WHEN $scale_rewards = 'none' THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
                ELSE
                    dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
                    / (COALESCE(rollout_std(value, rollout_id) OVER (PARTITION BY run_id, $batch_key), 0.0) + 1e-4)
            END
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
