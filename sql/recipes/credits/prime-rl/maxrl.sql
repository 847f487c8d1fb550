-- @kind credit
-- @doc prime-rl's MaxRL: reward less the group's mean, over the mean. Where the mean is not positive every credit is 0.
--   A rollout without a reward is no member of its group and gets no credit; one without a group has nothing to be
--   compared with.
-- @formula A = (r - mean) / mean; 0 where mean <= 0
-- @source prime-rl at commit 559b4477, src/prime_rl/orchestrator/algo/max_rl.py (max_rl), arXiv 2602.02710
-- @differs No eps and a guard (skyrl/maxrl: eps 1e-6 and no guard, so that negative rewards blow up; a singleton keeps its
--   reward there).
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 3} {"rollout_id": "b", "value": -1} {"rollout_id": "c", "value": -1}
--     {"rollout_id": "d", "value": -1} {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0}
--     {"rollout_id": "h", "value": 0}
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            maxrl(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
