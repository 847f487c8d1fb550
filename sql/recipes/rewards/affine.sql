-- @kind reward
-- @doc A reward shifted, scaled and cut at two bounds, before any baseline. A rollout without a reward stays without one. A
--   NaN or infinite reward is an error.
-- @formula r' = min(max((r + bias) * scale, low), high)
-- @source AReaL: reward_bias 0, reward_scaling 1, reward_clip 20, before its normalization
-- @differs clip: cuts only, also after a baseline; range_map: from range to range
-- @param bias double = 0 : added first
-- @param scale double = 1 : multiplied then
-- @param low double = null : least reward; null = none
-- @param high double = null : greatest reward; null = none
-- @check low {low} is above high {high}
--   SELECT $low AS low, $high AS high WHERE $low > $high
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test shifted, scaled, then cut
--   reward {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 0.25} {"rollout_id": "c", "value": -3}
--     {"rollout_id": "d", "value": null, "exclusion_reason": "no_score"}
--   param bias=-0.5
--   param scale=4
--   param low=-5
--   param high=1.5
--   expect {"rollout_id": "a", "value": 1.5} {"rollout_id": "b", "value": -1} {"rollout_id": "c", "value": -5}
--   expect {"rollout_id": "d", "value": null, "exclusion_reason": "no_score"}
-- @test without bounds nothing is cut
--   reward {"rollout_id": "a", "value": 1e300} {"rollout_id": "b", "value": -1e-300}
--   expect {"rollout_id": "a", "value": 1e300} {"rollout_id": "b", "value": -1e-300}
-- @test NaN is no reward
--   reward {"rollout_id": "a", "value": "NaN"}
--   error the reward of rollout a of run run is NaN, no finite number
WITH shifted AS (
    SELECT *, (value + $bias) * $scale AS moved FROM reward
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE WHEN moved < $low THEN $low WHEN moved > $high THEN $high ELSE moved END AS value,
    exclusion_reason,
    components,
    score_ids
FROM shifted
