-- @kind credit
-- @doc Group-relative advantage: the reward less the group's mean, over the group's standard deviation. A rollout without a
--   reward is no member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = (r - mean) / (std + eps), mean over the distinct rollouts of the group, std over the group, the batch, or
--   none; 0 for a singleton and at zero variance
-- @source arXiv 2402.03300 (GRPO)
-- @param eps double = 1e-6 : added to the standard deviation
-- @param ddof long = 1 : 1 divides the variance by n - 1, 0 by n
-- @param scale string = group : what divides: the standard deviation of the group, that of the batch, or none
-- @param leave_one_out boolean = false : whether mean and standard deviation of the group are those of the others
-- @param singleton string = zero : credit of the only member of a group: zero, value, unit_std, null or error
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check scale is {given}: it must be group, batch or none
--   SELECT COALESCE($scale, 'null') AS given WHERE $scale IS NULL OR $scale NOT IN ('group', 'batch', 'none')
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
-- @test the standard deviation of the batch, and none: the batch has 1, 0, 0, 1 and the groups means of 0.5
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "h", "value": 0} {"rollout_id": "d", "group_id": "h", "value": 1}
--   param scale=batch
--   param ddof=0
--   param eps=0
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": -1} {"rollout_id": "c", "value": -1}
--     {"rollout_id": "d", "value": 1}
-- @test the others' mean, undivided, and a singleton that keeps its value
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "h", "value": 3}
--   param scale=none
--   param leave_one_out=true
--   param singleton=value
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": -1} {"rollout_id": "c", "value": 3}
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            CASE
                WHEN $scale = 'group'
                THEN
                    grpo(
                        value, rollout_id, eps => $eps, ddof => $ddof, leave_one_out => $leave_one_out, singleton => $singleton
                    ) OVER (PARTITION BY run_id, $group_key)
                ELSE
                    grpo(value, rollout_id, scale => 'none', leave_one_out => $leave_one_out, singleton => $singleton)
                        OVER (PARTITION BY run_id, $group_key)
                    / CASE
                        WHEN $scale = 'none' THEN 1.0
                        -- A batch without spread has no differences either: its credits are 0, not 0 over 0.
                        WHEN rollout_std(value, rollout_id, ddof => $ddof) OVER (PARTITION BY run_id, $batch_key) > 0
                        THEN rollout_std(value, rollout_id, ddof => $ddof) OVER (PARTITION BY run_id, $batch_key) + $eps
                        ELSE 1.0
                    END
            END
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
