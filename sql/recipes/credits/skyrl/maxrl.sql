-- @kind credit
-- @doc SkyRL's maxrl: reward less the group's mean, over the mean plus 1e-6, whatever its sign. Quirk: a mean near 0 or
--   below makes credits huge or turns their sign. A singleton keeps its reward. A rollout without a reward is no
--   member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = (r - mean) / (mean + 1e-6); r for a singleton
-- @source skyrl, backends/skyrl_train/utils/ppo_utils.py, compute_maxrl_advantage
-- @differs No guard (prime-rl/maxrl: 0 where the mean is not positive, no eps); nonpositive_mean=zero is the corrected
--   form.
-- @param nonpositive_mean string = divide : what a mean of 0 or less does: divide as SkyRL, zero or null
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 2.999988000048} {"rollout_id": "b", "value": -0.9999960000160001}
--     {"rollout_id": "c", "value": -0.9999960000160001} {"rollout_id": "d", "value": -0.9999960000160001}
--     {"rollout_id": "e", "value": 0.5} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            maxrl(value, rollout_id, eps => 1e-6, nonpositive_mean => $nonpositive_mean, singleton => 'value') OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
