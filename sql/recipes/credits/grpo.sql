-- @kind credit
-- @doc Group-relative advantage: the reward less the group's mean, over the group's standard deviation. A rollout without a
--   reward is no member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = (r - mean) / (std + eps), over the distinct rollouts of the group; 0 for a singleton and at zero variance
-- @source arXiv 2402.03300 (GRPO)
-- @param eps double = 1e-6 : added to the standard deviation
-- @param ddof long = 1 : 1 divides the variance by n - 1, 0 by n
-- @test one of four wins
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--   param eps=0
--   expect {"rollout_id": "a", "value": 1.5, "baseline_key": "g", "baseline_count": 4}
--   expect {"rollout_id": "b", "value": -0.5} {"rollout_id": "c", "value": -0.5} {"rollout_id": "d", "value": -0.5}
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
        THEN grpo(value, rollout_id, eps => $eps, ddof => $ddof) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    count(value) OVER (PARTITION BY run_id, $group_key) AS baseline_count
FROM reward
WHERE call_id IS NULL
