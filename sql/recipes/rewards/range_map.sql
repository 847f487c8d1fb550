-- @kind reward
-- @doc A reward taken from one range to another; what lies outside is cut first. A rollout without a reward stays without one;
--   a NaN or infinite reward is an error.
-- @formula r' = target_low + (clip(r, source_low, source_high) - source_low) / (source_high - source_low) * (target_high - target_low)
-- @source NeMo RL: reward_scaling, off by default, 0..1
-- @differs affine: no range that is cut first
-- @param source_low double : reward that becomes target_low
-- @param source_high double : reward that becomes target_high
-- @param target_low double = 0
-- @param target_high double = 1
-- @check source_low {low} is not below source_high {high}
--   SELECT $source_low AS low, $source_high AS high WHERE NOT COALESCE($source_low < $source_high, false)
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test from -1..1 to 0..10
--   reward {"rollout_id": "a", "value": -1} {"rollout_id": "b", "value": 0.5} {"rollout_id": "c", "value": 7}
--     {"rollout_id": "d", "value": null}
--   param source_low=-1
--   param source_high=1
--   param target_high=10
--   expect {"rollout_id": "a", "value": 0} {"rollout_id": "b", "value": 7.5} {"rollout_id": "c", "value": 10}
--   expect {"rollout_id": "d", "value": null}
-- @test an empty range
--   reward {"rollout_id": "a", "value": 1}
--   param source_low=1
--   param source_high=1
--   error source_low 1.0 is not below source_high 1.0
WITH cut AS (
    SELECT
        *,
        CASE WHEN value < $source_low THEN $source_low WHEN value > $source_high THEN $source_high ELSE value END AS inside
    FROM reward
)
SELECT
    run_id,
    rollout_id,
    call_id,
    $target_low + (inside - $source_low) / ($source_high - $source_low) * ($target_high - $target_low) AS value,
    exclusion_reason,
    components,
    score_ids
FROM cut
