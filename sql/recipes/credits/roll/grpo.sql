-- @kind credit
-- @doc ROLL's grpo: reward less a mean, over a standard deviation, each of the group, the batch or of all batches so
--   far; then clipped. The agentic pipeline gives 0 to a group of one, or with a standard deviation of at most 1e-6;
--   the RLVR pipeline has no such guard, and NaN for a group of one, which is null here. A rollout without a reward
--   is no member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = clip((r - mean) / (std + 1e-6), -reward_clip, reward_clip), std with ddof 1; agentic: 0 where the
--   group has one member or std <= 1e-6; rlvr: null for a group of one
-- @source ROLL at commit 8eb27cc2, roll/pipeline/agentic/utils.py (agentic_reward_norm) and roll/utils/functionals.py
--   (reward_norm, reward_postprocess); its advantage_clip is the recipe advantage_clip
-- @differs Clips after normalization (TRL RLOO: before the baseline). A standard deviation of 1e-6 or less counts as
--   none in the agentic pipeline.
-- @param norm_mean_type string = group : mean of the group, the batch, running, or null for none
-- @param norm_std_type string = group : standard deviation of the group, the batch, running, or null for none
-- @param reward_clip double = null : greatest size after normalization; null = no limit
-- @param pipeline string = agentic : whose guards: agentic or rlvr
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check pipeline is {given}: it must be agentic or rlvr
--   SELECT $pipeline AS given WHERE $pipeline IS NULL OR $pipeline NOT IN ('agentic', 'rlvr')
-- @check norm_mean_type is {given}: it must be group, batch, running or null
--   SELECT $norm_mean_type AS given WHERE $norm_mean_type NOT IN ('group', 'batch', 'running')
-- @check norm_std_type is {given}: it must be group, batch, running or null
--   SELECT $norm_std_type AS given WHERE $norm_std_type NOT IN ('group', 'batch', 'running')
-- @check norm_mean_type {mean} does not go with norm_std_type {std}
--   SELECT COALESCE($norm_mean_type, 'null') AS mean, COALESCE($norm_std_type, 'null') AS std
--   WHERE (COALESCE($norm_mean_type, '') = 'running') <> (COALESCE($norm_std_type, '') = 'running')
--     OR ($norm_mean_type IS NULL AND $norm_std_type IS NOT NULL)
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.499997000006} {"rollout_id": "b", "value": -0.499999000002}
--     {"rollout_id": "c", "value": -0.499999000002} {"rollout_id": "d", "value": -0.499999000002}
--     {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
-- @test without a guard: a group of one is NaN in ROLL, a spread below 1e-6 divides
--   reward {"rollout_id": "a", "group_id": "g", "value": 0} {"rollout_id": "b", "group_id": "g", "value": 1e-7}
--     {"rollout_id": "c", "group_id": "h", "value": 0.5}
--   param pipeline=rlvr
--   expect {"rollout_id": "a", "value": -0.04669795586} {"rollout_id": "b", "value": 0.04669795586}
--     {"rollout_id": "c", "value": null}
-- @test a spread below 1e-6 counts as none
--   reward {"rollout_id": "a", "group_id": "g", "value": 0} {"rollout_id": "b", "group_id": "g", "value": 1e-7}
--   expect {"rollout_id": "a", "value": 0} {"rollout_id": "b", "value": 0}
WITH measured AS (
    SELECT
        reward.*,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count,
        rollout_std(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS group_std,
        rollout_std(value, rollout_id) OVER (PARTITION BY run_id, $batch_key) AS batch_std
    FROM reward
    WHERE call_id IS NULL
),
normalized AS (
    SELECT
        *,
        CASE
            WHEN $group_key IS NULL THEN NULL
            WHEN $norm_mean_type = 'group' AND $norm_std_type = 'group'
            THEN grpo(
                value, rollout_id,
                min_std => CASE WHEN $pipeline = 'agentic' THEN 1e-6 ELSE 0.0 END,
                singleton => CASE WHEN $pipeline = 'agentic' THEN 'zero' ELSE 'null' END
            ) OVER (PARTITION BY run_id, $group_key)
            WHEN $norm_mean_type = 'batch' AND $norm_std_type = 'batch'
            THEN grpo(
                value, rollout_id,
                min_std => CASE WHEN $pipeline = 'agentic' THEN 1e-6 ELSE 0.0 END,
                singleton => CASE WHEN $pipeline = 'agentic' THEN 'zero' ELSE 'null' END
            ) OVER (PARTITION BY run_id, $batch_key)
            WHEN $norm_mean_type = 'running' AND $norm_std_type = 'running'
            THEN running_norm(value, rollout_id, CAST($batch_key AS BIGINT), eps => 1e-6) OVER (PARTITION BY run_id)
            WHEN $pipeline = 'agentic'
                AND $norm_mean_type <> $norm_std_type
                AND (baseline_count = 1 OR CASE WHEN $norm_std_type = 'batch' THEN batch_std ELSE group_std END <= 1e-6)
            THEN CASE WHEN value IS NOT NULL THEN 0.0 END
            WHEN $norm_mean_type = 'group' AND $norm_std_type = 'batch'
            THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key) / (batch_std + 1e-6)
            WHEN $norm_mean_type = 'batch' AND $norm_std_type = 'group'
            THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $batch_key) / (group_std + 1e-6)
            WHEN $norm_mean_type = 'group' THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
            WHEN $norm_mean_type = 'batch' THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $batch_key)
            ELSE value
        END AS credit
    FROM measured
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    clip(credit, 0.0 - $reward_clip, $reward_clip) AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM normalized
