-- @kind credit
-- @doc RAGEN's mean_std: reward less the group's mean, over its standard deviation; 0 where that is at most 1e-6 or
--   the group has one member. Quirk: where every group of the batch has one member, nothing is compared and rewards
--   stay as they are. A rollout without a reward is no member of its group and gets no credit; one without a group
--   has nothing to be compared with.
-- @formula A = (r - mean) / (std + 1e-6), std with ddof 1; 0 where std <= 1e-6
-- @source RAGEN at commit 5eb79b82, ragen/llm_agent/ctx_manager.py, _normalize_score_tensor (reward_normalization; its
--   grouping state is the group, inductive and batch are other values of group_key)
-- @differs The formula of roll/grpo.
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.499997000006} {"rollout_id": "b", "value": -0.499999000002}
--     {"rollout_id": "c", "value": -0.499999000002} {"rollout_id": "d", "value": -0.499999000002}
--     {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
-- @test groups of one alone keep their rewards
--   reward {"rollout_id": "a", "group_id": "g", "value": 4} {"rollout_id": "b", "group_id": "h", "value": -2}
--   expect {"rollout_id": "a", "value": 4} {"rollout_id": "b", "value": -2}
WITH compared AS (
    SELECT
        reward.*,
        CASE WHEN $group_key IS NOT NULL THEN grpo(value, rollout_id, min_std => 1e-6) OVER (PARTITION BY run_id, $group_key) END AS credit,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
    FROM reward
    WHERE call_id IS NULL
),
batched AS (
    SELECT *, max(baseline_count) OVER (PARTITION BY run_id, $batch_key) AS largest
    FROM compared
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN baseline_key IS NULL THEN NULL
        WHEN largest = 1 THEN value
        ELSE credit
    END AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM batched
