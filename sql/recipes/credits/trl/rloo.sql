-- @kind credit
-- @doc TRL's RLOOTrainer: the reward, clipped if asked, less the mean of the others in the group; over the standard
--   deviation of the batch if asked. A rollout without a reward leaves the statistics but keeps its tokens, with
--   advantage 0; one without a group has nothing to be compared with.
-- @formula r = clip(r, low, high); a = n / (n - 1) * (r - mean), 0 for a singleton; A = a, or (a - mean(a)) / (std(a) +
--   1e-4) over the batch with normalize_advantages, ddof 1
-- @source trl at commit f2cd5771, trl/trainer/rloo_trainer.py (reward_clip_range, normalize_advantages); its KL penalty in the reward is part of
--   the reward here
-- @differs Singleton 0 (verl/rloo, rllm/rloo: its reward). Clips before the baseline (OpenRLHF: after it).
-- @param reward_clip_range_low double = null : least reward; null = no limit
-- @param reward_clip_range_high double = null : greatest reward; null = no limit
-- @param normalize_advantages boolean = false : whether advantages are normalized over the batch
-- @param unscored string = zero : credit of a rollout without a reward: zero as TRL, whose tokens then count in the loss,
--   or null
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check unscored is {given}: it must be zero or null
--   SELECT COALESCE($unscored, 'null') AS given WHERE $unscored NOT IN ('zero')
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": -0.3333333333333333}
--     {"rollout_id": "c", "value": -0.3333333333333333} {"rollout_id": "d", "value": -0.3333333333333333}
--     {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
-- @test a rollout without a reward
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": null}
--     {"rollout_id": "c", "group_id": "g", "value": 0}
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 0} {"rollout_id": "c", "value": -1}
WITH clipped AS (
    SELECT
        reward.*,
        CASE
            WHEN value < $reward_clip_range_low THEN $reward_clip_range_low
            WHEN value > $reward_clip_range_high THEN $reward_clip_range_high
            ELSE value
        END AS clipped
    FROM reward
    WHERE call_id IS NULL
),
centered AS (
    SELECT
        *,
        CASE WHEN $group_key IS NOT NULL THEN rloo(clipped, rollout_id) OVER (PARTITION BY run_id, $group_key) END AS credit,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
    FROM clipped
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN baseline_key IS NOT NULL AND value IS NULL AND $unscored = 'zero' THEN 0.0
        WHEN NOT $normalize_advantages THEN credit
        ELSE
            (credit - rollout_mean(credit, rollout_id) OVER (PARTITION BY run_id, $batch_key))
            / (COALESCE(rollout_std(credit, rollout_id) OVER (PARTITION BY run_id, $batch_key), 0.0) + 1e-4)
    END AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM centered
