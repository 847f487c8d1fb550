-- @kind reward
-- @doc A reward less a mean, over a standard deviation, each of them of the group, of the batch (the rollouts of one
--   step), of all steps so far, or left away. A rollout without a reward is no member. Equal rewards give 0; a NaN or
--   infinite reward is an error. Rollouts for training and for evaluation are groups of their own.
-- @formula r' = (r - mean) / (std + eps); leave_one_out: the mean of the others; the std of too few members is 1
-- @source AReaL NormConfig (mean_level, std_level, ddof 1, eps 1e-5, leave1out), ROLL (group, batch, running)
-- @differs clip baseline zscore: group only, cut; a credit such as grpo: an advantage, over training rollouts only
-- @param mean string = group : group, batch, running or none
-- @param std string = group : group, batch, running or none
-- @param ddof long = 1 : 1 divides the variance by n - 1, 0 by n
-- @param eps double = 1e-5 : added to the std
-- @param leave_one_out boolean = false : compare with the mean of the others; a rollout without others has the mean 0
-- @check mean and std are group, batch, running or none, not {what}
--   SELECT what FROM (VALUES ($mean), ($std)) AS t(what) WHERE what IS NULL OR what NOT IN ('group', 'batch', 'running', 'none') ORDER BY what LIMIT 1
-- @check ddof is 0 or 1, not {ddof}
--   SELECT $ddof AS ddof WHERE $ddof IS NULL OR $ddof NOT IN (0, 1)
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test the group: mean 1 and std 2
--   reward {"rollout_id": "a", "group_id": "g", "value": 4} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "g", "value": null} {"rollout_id": "f", "group_id": "h", "value": 5}
--     {"rollout_id": "i", "value": 5}
--   param eps=0
--   expect {"rollout_id": "a", "value": 1.5} {"rollout_id": "b", "value": -0.5} {"rollout_id": "c", "value": -0.5}
--   expect {"rollout_id": "d", "value": -0.5} {"rollout_id": "e", "value": null} {"rollout_id": "f", "value": 0}
--   expect {"rollout_id": "i", "value": null, "exclusion_reason": "no_group"}
-- @test the mean of the others: 4 - 0 and 0 - 4/3, undivided
--   reward {"rollout_id": "a", "group_id": "g", "value": 4} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "f", "group_id": "h", "value": 5}
--   param std=none
--   param leave_one_out=true
--   expect {"rollout_id": "a", "value": 4} {"rollout_id": "b", "value": -1.3333333333333333}
--   expect {"rollout_id": "c", "value": -1.3333333333333333} {"rollout_id": "d", "value": -1.3333333333333333}
--   expect {"rollout_id": "f", "value": 5}
-- @test the mean of the group over the std of the batch: 2, 0 | 7, 9 have ddof 0 std sqrt(13.25)
--   reward {"rollout_id": "a", "group_id": "g", "step": 1, "value": 2} {"rollout_id": "b", "group_id": "g", "step": 1, "value": 0}
--     {"rollout_id": "c", "group_id": "h", "step": 1, "value": 7} {"rollout_id": "d", "group_id": "h", "step": 1, "value": 9}
--     {"rollout_id": "e", "group_id": "i", "step": 2, "value": 1}
--   param std=batch
--   param ddof=0
--   param eps=0
--   expect {"rollout_id": "a", "value": 0.27472112789737807} {"rollout_id": "b", "value": -0.27472112789737807}
--   expect {"rollout_id": "c", "value": -0.27472112789737807} {"rollout_id": "d", "value": 0.27472112789737807}
--   expect {"rollout_id": "e", "value": 0}
-- @test all steps so far: step 1 has 1 and 3, step 2 has 8 beside them, mean 4 and std sqrt(13)
--   reward {"rollout_id": "a", "step": 1, "value": 1} {"rollout_id": "b", "step": 1, "value": 3}
--     {"rollout_id": "c", "step": 2, "value": 8}
--   param mean=running
--   param std=running
--   param eps=0
--   expect {"rollout_id": "a", "value": -0.7071067811865475} {"rollout_id": "b", "value": 0.7071067811865475}
--   expect {"rollout_id": "c", "value": 1.1094003924504583}
-- @test groups, steps and runs leave each other alone
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 1e300} {"rollout_id": "f", "group_id": "h", "value": -1e300}
--   expect {"rollout_id": "a", "value": 1.4999700005999880} {"rollout_id": "b", "value": -0.4999900001999960}
--     {"rollout_id": "c", "value": -0.4999900001999960} {"rollout_id": "d", "value": -0.4999900001999960}
--   expect {"rollout_id": "e", "value": 0.7071067811865475} {"rollout_id": "f", "value": -0.7071067811865475}
-- @test a std of one member is 1, beside which eps is added: 4 - 2 over 1.25
--   reward {"rollout_id": "a", "group_id": "g", "step": 1, "value": 4} {"rollout_id": "b", "group_id": "h", "step": 1, "value": 0}
--   param mean=batch
--   param eps=0.25
--   expect {"rollout_id": "a", "value": 1.6} {"rollout_id": "b", "value": -1.6}
-- @test an evaluation is compared with evaluations
--   reward {"rollout_id": "a", "group_id": "g", "value": 2} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "g", "value": 9, "purpose": "eval"}
--   param std=none
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": -1} {"rollout_id": "e", "value": 0}
WITH measured AS (
    SELECT
        *,
        $group_key AS group_value,
        concat_ws('/', rollout_id, call_id) AS member,
        -- What all steps so far come to is summed over the run's largest: squares of 1e-300 and 1e300 are numbers then.
        avg(value) OVER (PARTITION BY run_id) AS middle,
        CASE
            WHEN max(abs(value)) OVER (PARTITION BY run_id) > 0.0 THEN max(abs(value)) OVER (PARTITION BY run_id)
            ELSE 1.0
        END AS unit
    FROM reward
),
compared AS (
    SELECT
        *,
        value / unit - middle / unit AS x,
        dr_grpo(value, member) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS group_difference,
        rloo(value, member, singleton => 'value') OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS group_others,
        rollout_count(value, member) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS group_count,
        rollout_std(value, member, ddof => $ddof) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS group_std,
        dr_grpo(value, member) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), step) AS batch_difference,
        rloo(value, member, singleton => 'value') OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), step) AS batch_others,
        rollout_count(value, member) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), step) AS batch_count,
        rollout_std(value, member, ddof => $ddof) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), step) AS batch_std
    FROM measured
),
stepped AS (
    SELECT
        *,
        count(x) OVER (PARTITION BY run_id, COALESCE(purpose, 'train') ORDER BY step RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS running_count,
        avg(x) OVER (PARTITION BY run_id, COALESCE(purpose, 'train') ORDER BY step RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS running_mean,
        avg(power(x, 2)) OVER (PARTITION BY run_id, COALESCE(purpose, 'train') ORDER BY step RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS mean_square
    FROM compared
),
chosen AS (
    SELECT
        run_id, rollout_id, call_id, value, exclusion_reason,
        group_value IS NULL AND ($mean = 'group' OR $std = 'group') AS lacks_group,
        CASE
            WHEN $mean = 'none' THEN value
            WHEN $mean = 'group' AND $leave_one_out THEN group_others
            WHEN $mean = 'group' THEN group_difference
            WHEN $mean = 'batch' AND $leave_one_out THEN batch_others
            WHEN $mean = 'batch' THEN batch_difference
            WHEN NOT $leave_one_out THEN (x - running_mean) * unit
            WHEN running_count > 1 THEN (x - running_mean) * unit * running_count / (running_count - 1)
            ELSE value
        END AS centered,
        CASE $std
            WHEN 'group' THEN CASE WHEN group_count > $ddof THEN group_std END
            WHEN 'batch' THEN CASE WHEN batch_count > $ddof THEN batch_std END
            WHEN 'running'
            THEN CASE
                WHEN running_count > $ddof
                THEN unit * sqrt(
                    greatest(mean_square - power(running_mean, 2), 0.0) * running_count / (running_count - $ddof)
                )
            END
        END AS std
    FROM stepped
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE
        WHEN lacks_group THEN NULL
        WHEN centered = 0.0 OR $std = 'none' THEN centered
        ELSE centered / (COALESCE(std, 1.0) + $eps)
    END AS value,
    COALESCE(exclusion_reason, CASE WHEN value IS NOT NULL AND lacks_group THEN 'no_group' END) AS exclusion_reason
FROM chosen
