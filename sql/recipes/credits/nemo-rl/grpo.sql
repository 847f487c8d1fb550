-- @kind credit
-- @doc NeMo-RL's grpo: reward less the mean of the others in the group, over the standard deviation of the others.
--   Quirk: the lone winner of a group has others without spread, and its difference is not divided, while the
--   losers' are. A rollout without a reward is no member of its group and gets no credit; one without a group has
--   nothing to be compared with.
-- @formula A = (r - mean of the others) / (std of the others + 1e-6), ddof 1; undivided where that std is 0; mean and std
--   of all without use_leave_one_out_baseline; 0 for a singleton
-- @source NeMo RL at commit 7ea279ab, nemo_rl/algorithms/advantage_estimator.py (GRPOAdvantageEstimator) and
--   nemo_rl/algorithms/utils.py (calculate_baseline_and_std_per_prompt); its advantage clip is the recipe advantage_clip
-- @differs Leaves the member out of mean and standard deviation (no other trainer does both): a lone winner of four gets
--   1.0 here, 1.5 in verl.
-- @param use_leave_one_out_baseline boolean = true : whether statistics are those of the others
-- @param normalize_rewards boolean = true : false does not divide
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": -0.5773492691913577}
--     {"rollout_id": "c", "value": -0.5773492691913577} {"rollout_id": "d", "value": -0.5773492691913577}
--     {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
-- @test statistics of all
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5}
--   param use_leave_one_out_baseline=false
--   expect {"rollout_id": "a", "value": 1.499997000006} {"rollout_id": "b", "value": -0.499999000002}
--     {"rollout_id": "c", "value": -0.499999000002} {"rollout_id": "d", "value": -0.499999000002}
--     {"rollout_id": "e", "value": 0}
-- @test of two, the other has no spread
--   reward {"rollout_id": "a", "group_id": "g", "value": 3} {"rollout_id": "b", "group_id": "g", "value": 1}
--   expect {"rollout_id": "a", "value": 2} {"rollout_id": "b", "value": -2}
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            CASE
                WHEN $normalize_rewards AND $use_leave_one_out_baseline
                THEN grpo(value, rollout_id, leave_one_out => true) OVER (PARTITION BY run_id, $group_key)
                WHEN $normalize_rewards THEN grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
                WHEN $use_leave_one_out_baseline THEN rloo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
                ELSE dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
            END
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM reward
WHERE call_id IS NULL
