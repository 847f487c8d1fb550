-- @kind credit
-- @doc verl's grpo: reward less the group's mean, over its standard deviation. The only row of a group keeps its
--   reward, over 1 + epsilon: verl takes a mean of 0 and a standard deviation of 1 for it. A rollout without a
--   reward is no member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = (r - mean) / (std + epsilon), std with ddof 1; r - mean without norm_adv_by_std_in_grpo; r / (1 + epsilon)
--   for a single row
-- @source verl at commit 1dda039b, verl/trainer/ppo/core_algos.py (compute_grpo_outcome_advantage) and
--   verl/trainer/ppo/v1/utils.py (compute_advantage_for_multi_trajectories)
-- @differs A singleton keeps its reward here (TRL, ROLL, AReaL, NeMo-RL: 0; slime, OpenRLHF: NaN). epsilon 1e-6, ddof 1.
--   A rollout that became several rows (one for each chain of exact extensions, view rollout_rows) votes once, with its
--   last row, and all of them get its credit: verl's default trainer does so for grpo alone, its other estimators count
--   each row. With votes=row it counts once for each of them, as in verl's older trainer.
-- @param epsilon double = 1e-6 : added to the standard deviation
-- @param norm_adv_by_std_in_grpo boolean = true : false does not divide (Dr. GRPO)
-- @param votes string = rollout : what counts once in the group: each rollout, or each row, as in verl's older trainer
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.499997000006} {"rollout_id": "b", "value": -0.499999000002}
--     {"rollout_id": "c", "value": -0.499999000002} {"rollout_id": "d", "value": -0.499999000002}
--     {"rollout_id": "e", "value": 0.49999950000050003} {"rollout_id": "f", "value": 0}
--     {"rollout_id": "h", "value": 0}
-- @test rows vote
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a2", "rollout_id": "a", "call_index": 2, "prompt_len": 1, "output_len": 2}
--   param votes=row
--   expect {"rollout_id": "a", "value": 0.499999000002} {"rollout_id": "b", "value": -1.499997000006}
-- @test a rollout of three rows votes once
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a2", "rollout_id": "a", "call_index": 2, "prompt_len": 1, "output_len": 2}
--   expect {"rollout_id": "a", "value": 0.7071057811879616} {"rollout_id": "b", "value": -0.7071057811879616}
WITH voted AS (
    SELECT
        reward.*,
        CASE WHEN $votes = 'row' THEN COALESCE(counted.merged_rows, 1) ELSE 1 END AS votes
    FROM reward
    LEFT JOIN rollout_rows AS counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
    WHERE reward.call_id IS NULL
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            CASE
                WHEN $norm_adv_by_std_in_grpo
                THEN grpo(value, rollout_id, eps => $epsilon, singleton => 'unit_std', votes => votes) OVER (PARTITION BY run_id, $group_key)
                ELSE dr_grpo(value, rollout_id, singleton => 'value', votes => votes) OVER (PARTITION BY run_id, $group_key)
            END
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM voted
