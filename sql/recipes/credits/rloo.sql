-- @kind credit
-- @doc Leave-one-out advantage: the reward less the mean of the others in the group. A rollout without a reward is no member of
--   its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = r - mean of the others = n / (n - 1) * (r - mean), over the distinct rollouts of the group; 0 for a singleton
-- @source arXiv 2402.14740 (RLOO)
-- @test one of four wins
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--   expect {"rollout_id": "a", "value": 1, "baseline_key": "g", "baseline_count": 4}
--   expect {"rollout_id": "b", "value": -0.3333333333333333} {"rollout_id": "c", "value": -0.3333333333333333} {"rollout_id": "d", "value": -0.3333333333333333}
-- @test a singleton, equal rewards, no reward and no group
--   reward {"rollout_id": "a", "group_id": "g", "value": 3} {"rollout_id": "b", "group_id": "g", "value": null}
--     {"rollout_id": "c", "group_id": "h", "value": 2} {"rollout_id": "d", "group_id": "h", "value": 2}
--     {"rollout_id": "e", "value": 5}
--   expect {"rollout_id": "a", "value": 0, "baseline_count": 1} {"rollout_id": "b", "value": null}
--   expect {"rollout_id": "c", "value": 0} {"rollout_id": "d", "value": 0} {"rollout_id": "e", "value": null}
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN rloo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
