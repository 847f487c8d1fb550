-- @kind credit
-- @doc verl's remax where the whole reward falls due at the last token: the reward less that of the greedy rollout of
--   the group, which gets no credit itself. Say which rollout that is: by its attempt, its purpose or its metadata.
--   A rollout without a reward is no member of its group and gets no credit; one without a group has nothing to be
--   compared with.
-- @formula A = r - r of the greedy rollout (or the mean of several); null in a group without one
-- @source verl/trainer/ppo/core_algos.py at commit 1dda039b, compute_remax_outcome_advantage
-- @differs verl takes the baseline off the return of every token: with rewards before the last token its advantages differ
--   within a rollout. verl keeps greedy rollouts out of training; they get no credit here.
-- @param is_greedy expression : expression over rollouts that is true for the greedy one, such as json_get_bool(metadata,
--   'greedy')
-- @param no_greedy string = null : credit in a group without a greedy rollout: null, value or error
-- @test b is the greedy one of g; the other groups have none
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   param is_greedy=rollout_id = 'b'
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": null} {"rollout_id": "c", "value": 0}
--     {"rollout_id": "d", "value": 0} {"rollout_id": "e", "value": null} {"rollout_id": "f", "value": null}
--     {"rollout_id": "h", "value": null}
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN remax(value, rollout_id, $is_greedy, no_greedy => $no_greedy) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_sum(CASE WHEN $is_greedy AND value IS NOT NULL THEN 1.0 ELSE 0.0 END, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER)
        AS baseline_count
FROM reward
WHERE call_id IS NULL
