-- @kind credit
-- @doc OpenRLHF's group_norm: reward less the group's mean, over its standard deviation, then clipped. OpenRLHF has NaN
--   for a singleton; a credit is never NaN here, so it is null. A rollout without a reward is no member of its group
--   and gets no credit; one without a group has nothing to be compared with.
-- @formula A = clip((r - mean) / (std + 1e-9), low, high), std with ddof 1; null (OpenRLHF: NaN) for a singleton
-- @source openrlhf, trainer/ppo_utils/experience_maker.py
-- @differs eps 1e-9, the smallest of all. Clips after the baseline, to 10 by default (TRL RLOO: before it, off; ROLL: after
--   normalization, off).
-- @param reward_clip_range_low double = -10 : least shaped reward; null = no limit
-- @param reward_clip_range_high double = 10 : greatest shaped reward; null = no limit
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.4999999970000002} {"rollout_id": "b", "value": -0.49999999900000003}
--     {"rollout_id": "c", "value": -0.49999999900000003} {"rollout_id": "d", "value": -0.49999999900000003}
--     {"rollout_id": "e", "value": null} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
WITH compared AS (
    SELECT
        reward.*,
        CASE WHEN $group_key IS NOT NULL THEN grpo(value, rollout_id, eps => 1e-9, singleton => 'null') OVER (PARTITION BY run_id, $group_key) END AS credit,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
    FROM reward
    WHERE call_id IS NULL
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN credit < $reward_clip_range_low THEN $reward_clip_range_low
        WHEN credit > $reward_clip_range_high THEN $reward_clip_range_high
        ELSE credit
    END AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM compared
