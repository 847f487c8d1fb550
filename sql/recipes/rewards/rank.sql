-- @kind reward
-- @doc The place of a reward among those of its group, so that only the order counts. Equal rewards share the mean of
--   their places. A rollout without a reward is no member. The only member of a group has the rank singleton; a NaN
--   or infinite reward is an error. Rollouts for training and for evaluation are groups of their own.
-- @formula rank: (place - 1) / (n - 1), 0 for the least and 1 for the greatest; quantile: share of the group with a reward not above r
-- @source rank statistics with mean ranks for ties (scipy.stats.rankdata average); quantile is the empirical distribution function
-- @differs normalize: keeps distances
-- @param form string = rank : rank or quantile
-- @param singleton double = 0.5 : rank of the only member of a group
-- @check the form is rank or quantile, not {form}
--   SELECT $form AS form WHERE $form IS NULL OR $form NOT IN ('rank', 'quantile')
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test places 1, 2.5, 2.5, 4
--   reward {"rollout_id": "a", "group_id": "g", "value": -7} {"rollout_id": "b", "group_id": "g", "value": 2}
--     {"rollout_id": "c", "group_id": "g", "value": 2} {"rollout_id": "d", "group_id": "g", "value": 1e300}
--     {"rollout_id": "e", "group_id": "g", "value": null} {"rollout_id": "f", "group_id": "h", "value": 9}
--     {"rollout_id": "i", "value": 9}
--   expect {"rollout_id": "a", "value": 0} {"rollout_id": "b", "value": 0.5} {"rollout_id": "c", "value": 0.5}
--   expect {"rollout_id": "d", "value": 1} {"rollout_id": "e", "value": null} {"rollout_id": "f", "value": 0.5}
--   expect {"rollout_id": "i", "value": null, "exclusion_reason": "no_group"}
-- @test the same as quantiles
--   reward {"rollout_id": "a", "group_id": "g", "value": -7} {"rollout_id": "b", "group_id": "g", "value": 2}
--     {"rollout_id": "c", "group_id": "g", "value": 2} {"rollout_id": "d", "group_id": "g", "value": 1e300}
--     {"rollout_id": "f", "group_id": "h", "value": 9}
--   param form=quantile
--   expect {"rollout_id": "a", "value": 0.25} {"rollout_id": "b", "value": 0.75} {"rollout_id": "c", "value": 0.75}
--   expect {"rollout_id": "d", "value": 1} {"rollout_id": "f", "value": 1}
WITH members AS (
    SELECT *, $group_key AS group_value FROM reward
),
placed AS (
    -- Nulls come last and are not counted: the places of the others do not see them.
    SELECT
        *,
        CAST(rank() OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value ORDER BY value NULLS LAST) AS DOUBLE) - 1.0 AS below,
        CAST(count(value) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value, value) AS DOUBLE) AS equal,
        CAST(count(value) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS DOUBLE) AS members
    FROM members
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE
        WHEN value IS NULL OR group_value IS NULL THEN NULL
        WHEN $form = 'quantile' THEN (below + equal) / members
        WHEN members = 1.0 THEN $singleton
        ELSE (below + (equal - 1.0) / 2.0) / (members - 1.0)
    END AS value,
    COALESCE(exclusion_reason, CASE WHEN value IS NOT NULL AND group_value IS NULL THEN 'no_group' END) AS exclusion_reason
FROM placed
