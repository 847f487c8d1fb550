-- @kind reward
-- @doc A reward less a mean, over a standard deviation, each of them of the group, of the batch (the rollouts of one step), of
--   all steps so far, or left away. A rollout without a reward is no member. Equal rewards give 0; a NaN or infinite reward is
--   an error.
-- @formula r' = (r - mean) / (std + eps); leave_one_out: the mean of the others; a std of too few members divides by 1
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
WITH scaled AS (
    -- Differences from one middle, over the largest reward: sums lose little where rewards are large and close, and the
    -- squares of 1e-300 and 1e300 are numbers.
    SELECT
        run_id, rollout_id, call_id, step, value, exclusion_reason, $group_key AS group_value, unit,
        value / unit - middle / unit AS x
    FROM (
        SELECT avg(value) AS middle, CASE WHEN max(abs(value)) > 0.0 THEN max(abs(value)) ELSE 1.0 END AS unit FROM reward
    )
    CROSS JOIN reward
),
grouped AS (
    SELECT
        *,
        count(x) OVER (PARTITION BY run_id, group_value) AS group_count,
        avg(x) OVER (PARTITION BY run_id, group_value) AS group_mean
    FROM scaled
),
group_squared AS (
    SELECT *, avg(power(x - group_mean, 2)) OVER (PARTITION BY run_id, group_value) AS group_square
    FROM grouped
),
stepped AS (
    SELECT
        *,
        count(x) OVER (PARTITION BY run_id, step) AS batch_count,
        avg(x) OVER (PARTITION BY run_id, step) AS batch_mean,
        count(x) OVER (PARTITION BY run_id ORDER BY step RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS running_count,
        avg(x) OVER (PARTITION BY run_id ORDER BY step RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS running_mean,
        avg(power(x, 2)) OVER (PARTITION BY run_id ORDER BY step RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS mean_square
    FROM group_squared
),
step_squared AS (
    SELECT *, avg(power(x - batch_mean, 2)) OVER (PARTITION BY run_id, step) AS batch_square
    FROM stepped
),
compared AS (
    SELECT
        run_id, rollout_id, call_id, value, exclusion_reason, x, unit,
        CASE $mean WHEN 'group' THEN group_mean WHEN 'batch' THEN batch_mean WHEN 'running' THEN running_mean END AS mean,
        CASE $mean WHEN 'group' THEN group_count WHEN 'batch' THEN batch_count WHEN 'running' THEN running_count END AS mean_count,
        CASE $std
            WHEN 'group' THEN group_square
            WHEN 'batch' THEN batch_square
            WHEN 'running' THEN mean_square - power(running_mean, 2)
        END AS square,
        CASE $std WHEN 'group' THEN group_count WHEN 'batch' THEN batch_count WHEN 'running' THEN running_count END AS std_count,
        group_value IS NULL AND ($mean = 'group' OR $std = 'group') AS lacks_group
    FROM step_squared
),
centered AS (
    SELECT
        *,
        CASE
            WHEN $mean = 'none' THEN value
            WHEN NOT $leave_one_out THEN (x - mean) * unit
            WHEN mean_count > 1 THEN (x - mean) * unit * mean_count / (mean_count - 1)
            ELSE value
        END AS centered,
        CASE
            WHEN $std = 'none' OR std_count <= $ddof THEN 1.0
            ELSE unit * sqrt(greatest(square, 0.0) * std_count / (std_count - $ddof)) + $eps
        END AS divisor
    FROM compared
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE
        WHEN lacks_group THEN NULL
        WHEN centered = 0.0 THEN 0.0
        ELSE centered / divisor
    END AS value,
    COALESCE(exclusion_reason, CASE WHEN value IS NOT NULL AND lacks_group THEN 'no_group' END) AS exclusion_reason
FROM centered
