-- @kind reward
-- @doc A reward cut at two bounds: as it is, or after its group's mean is taken off, or as a z-score of its group.
--   The three stand under one name in trainers and give other advantages; a cut baseline is followed by a credit
--   without one. A rollout without a reward stays without one, the only member of a group has mean 0 and z-score 0; a
--   NaN or infinite reward is an error. Rollouts for training and for evaluation are groups of their own.
-- @formula r' = min(max(x, low), high), x = r (baseline none), r - mean (mean), or (r - mean) / (std + eps) (zscore)
-- @source TRL RLOO clips before the baseline (none); OpenRLHF's reward_clip_range (-10, 10) after it (mean); RAGEN's asym_clip is zscore with -1 and 3
-- @differs affine: shifts and scales too, never after a baseline
-- @param low double = -10 : least reward; null = none
-- @param high double = 10 : greatest reward; null = none
-- @param baseline string = none : what is cut: none, mean or zscore
-- @param ddof long = 1 : of the std of zscore
-- @param eps double = 1e-6 : added to the std of zscore
-- @check low {low} is above high {high}
--   SELECT $low AS low, $high AS high WHERE $low > $high
-- @check the baseline is none, mean or zscore, not {baseline}
--   SELECT $baseline AS baseline WHERE $baseline IS NULL OR $baseline NOT IN ('none', 'mean', 'zscore')
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test the same bounds before and after a baseline
--   reward {"rollout_id": "a", "group_id": "g", "value": 6} {"rollout_id": "b", "group_id": "g", "value": 0}
--   param low=-1
--   param high=4
--   expect {"rollout_id": "a", "value": 4} {"rollout_id": "b", "value": 0}
-- @test after the mean
--   reward {"rollout_id": "a", "group_id": "g", "value": 6} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "value": 2} {"rollout_id": "d", "group_id": "g", "value": null, "exclusion_reason": "no_score"}
--   param low=-1
--   param high=4
--   param baseline=mean
--   expect {"rollout_id": "a", "value": 3} {"rollout_id": "b", "value": -1}
--   expect {"rollout_id": "c", "value": null, "exclusion_reason": "no_group"}
--   expect {"rollout_id": "d", "value": null, "exclusion_reason": "no_score"}
-- @test asymmetric bounds of a z-score: mean 1 and std sqrt(3), so sqrt(3) is cut to 1 and -0.577 to -0.5
--   reward {"rollout_id": "a", "group_id": "g", "value": 4} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--   param baseline=zscore
--   param ddof=0
--   param eps=0
--   param low=-0.5
--   param high=1
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": -0.5} {"rollout_id": "c", "value": -0.5}
--   expect {"rollout_id": "d", "value": -0.5}
-- @test a baseline that does not exist
--   reward {"rollout_id": "a", "value": 1}
--   param baseline=median
--   error the baseline is none, mean or zscore, not median
WITH compared AS (
    SELECT
        *,
        dr_grpo(CASE WHEN $baseline = 'mean' THEN value END, rollout_id) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), $group_key) AS centered,
        grpo(CASE WHEN $baseline = 'zscore' THEN value END, rollout_id, ddof => $ddof, eps => $eps)
            OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), $group_key) AS zscore
    FROM reward
),
picked AS (
    SELECT
        *,
        CASE
            WHEN $baseline = 'none' THEN value
            WHEN $group_key IS NULL THEN NULL
            WHEN $baseline = 'mean' THEN centered
            ELSE zscore
        END AS x
    FROM compared
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE WHEN x < $low THEN $low WHEN x > $high THEN $high ELSE x END AS value,
    COALESCE(exclusion_reason, CASE WHEN value IS NOT NULL AND x IS NULL THEN 'no_group' END) AS exclusion_reason
FROM picked
