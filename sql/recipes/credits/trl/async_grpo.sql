-- @kind credit
-- @doc TRL's AsyncGRPOTrainer: reward less the group's mean, over the group's population standard deviation. A rollout
--   without a reward leaves the statistics but keeps its tokens, with advantage 0; one without a group has nothing to be
--   compared with.
-- @formula A = (r - mean) / (std + 1e-8), std with ddof 0; 0 for a singleton
-- @source trl at commit f2cd5771, trl/experimental/async_grpo/async_rollout_worker.py
-- @differs ddof 0 and eps 1e-8, where trl/grpo has ddof 1 and eps 1e-4: a lone winner of four gets 1.73 here, 1.50 there.
-- @param unscored string = zero : credit of a rollout without a reward: zero as TRL, whose tokens then count in the loss,
--   or null
-- @check unscored is {given}: it must be zero or null
--   SELECT COALESCE($unscored, 'null') AS given WHERE $unscored NOT IN ('zero')
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.7320507675688783} {"rollout_id": "b", "value": -0.5773502558562927}
--     {"rollout_id": "c", "value": -0.5773502558562927} {"rollout_id": "d", "value": -0.5773502558562927}
--     {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
-- @test a rollout without a reward
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": null}
--     {"rollout_id": "c", "group_id": "g", "value": 0}
--   expect {"rollout_id": "a", "value": 0.99999998} {"rollout_id": "b", "value": 0} {"rollout_id": "c", "value": -0.99999998}
-- @test the corrected form
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": null}
--     {"rollout_id": "c", "group_id": "g", "value": 0}
--   param unscored=null
--   expect {"rollout_id": "a", "value": 0.99999998} {"rollout_id": "b", "value": null} {"rollout_id": "c", "value": -0.99999998}
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
                ELSE grpo(value, rollout_id, ddof => 0, eps => 1e-8) OVER (PARTITION BY run_id, $group_key)
            END
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
