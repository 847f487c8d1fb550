-- @kind credit
-- @doc AReaL's reward normalization: the reward is shifted, scaled and clipped, then less a mean, over a standard
--   deviation, each of the group, the batch, or none. AReaL cuts groups by a fixed stride over rows, so that ragged
--   or trailing groups are misaligned; that is not reproduced, groups are groups here. A rollout without a reward is
--   no member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula r = clip((r + reward_bias) * reward_scaling, -reward_clip, reward_clip); A = (r - mean) / (std + eps), std
--   around that mean with ddof 1 (0 without std_unbiased), or of the batch; a singleton has std 1 and gets 0, with
--   mean_leave1out its reward over 1 + eps
-- @source areal/utils/data.py, Normalization; areal/trainer/ppo/actor.py (May 2026)
-- @differs eps 1e-5. The batch standard deviation is taken around the group means where mean_level is group (TRL: around
--   the batch mean). With votes=row a rollout that became several rows (one for each chain of exact extensions, view
--   rollout_rows) counts once for each of them; votes=rollout is the corrected form.
-- @param mean_level string = group : mean of the group, the batch, or null for none
-- @param std_level string = group : standard deviation of the group, the batch, or null for none
-- @param mean_leave1out boolean = false : whether the mean is that of the others
-- @param std_unbiased boolean = true : ddof 1; false is ddof 0
-- @param eps double = 1e-5 : added to the standard deviation
-- @param reward_bias double = 0 : added to the reward
-- @param reward_scaling double = 1 : times the biased reward
-- @param reward_clip double = 20 : greatest size of a reward
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
-- @check mean_level is {given}: it must be group, batch or null
--   SELECT $mean_level AS given WHERE $mean_level NOT IN ('group', 'batch')
-- @check std_level is {given}: it must be group, batch or null
--   SELECT $std_level AS given WHERE $std_level NOT IN ('group', 'batch')
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.499970000599988} {"rollout_id": "b", "value": -0.49999000019999607}
--     {"rollout_id": "c", "value": -0.49999000019999607} {"rollout_id": "d", "value": -0.49999000019999607}
--     {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
-- @test the rows of a rollout vote unless rollouts do
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a2", "rollout_id": "a", "call_index": 2, "prompt_len": 1, "output_len": 2}
--   expect {"rollout_id": "a", "value": 0.49999000019999607} {"rollout_id": "b", "value": -1.499970000599988}
-- @test rollouts vote
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "prompt_len": 1, "output_len": 2}
--     {"call_id": "a2", "rollout_id": "a", "call_index": 2, "prompt_len": 1, "output_len": 2}
--   param votes=rollout
--   expect {"rollout_id": "a", "value": 0.7070967813279668} {"rollout_id": "b", "value": -0.7070967813279668}
WITH voted AS (
    SELECT
        reward.*,
        CASE WHEN $votes = 'row' THEN COALESCE(counted.merged_rows, 1) ELSE 1 END AS votes
    FROM reward
    LEFT JOIN rollout_rows AS counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
    WHERE reward.call_id IS NULL
),
clipped AS (
    SELECT *, greatest(least((value + $reward_bias) * $reward_scaling, $reward_clip), 0.0 - $reward_clip) AS clipped
    FROM voted
    WHERE value IS NOT NULL
),
centered AS (
    SELECT
        *,
        CAST(rollout_sum(CAST(votes AS DOUBLE), rollout_id) OVER (PARTITION BY run_id, $group_key) AS BIGINT) AS group_rows,
        rollout_sum(CAST(votes AS DOUBLE), rollout_id) OVER (PARTITION BY run_id, $batch_key) AS batch_rows,
        CASE
            WHEN $mean_level = 'group' AND $mean_leave1out THEN rloo(clipped, rollout_id, singleton => 'value', votes => votes) OVER (PARTITION BY run_id, $group_key)
            WHEN $mean_level = 'group' THEN dr_grpo(clipped, rollout_id, votes => votes) OVER (PARTITION BY run_id, $group_key)
            WHEN $mean_level = 'batch' AND $mean_leave1out THEN rloo(clipped, rollout_id, singleton => 'value', votes => votes) OVER (PARTITION BY run_id, $batch_key)
            WHEN $mean_level = 'batch' THEN dr_grpo(clipped, rollout_id, votes => votes) OVER (PARTITION BY run_id, $batch_key)
            ELSE clipped
        END AS difference
    FROM clipped
),
spread AS (
    SELECT
        *,
        CASE
            WHEN $std_level = 'group' AND group_rows = 1 AND $std_unbiased THEN 1.0
            WHEN $std_level = 'group'
            THEN sqrt(rollout_sum(votes * difference * difference, rollout_id) OVER (PARTITION BY run_id, $group_key) / (group_rows - CASE WHEN $std_unbiased THEN 1.0 ELSE 0.0 END))
            WHEN $std_level = 'batch' AND batch_rows = 1 AND $std_unbiased THEN 1.0
            WHEN $std_level = 'batch'
            THEN sqrt(rollout_sum(votes * difference * difference, rollout_id) OVER (PARTITION BY run_id, $batch_key) / (batch_rows - CASE WHEN $std_unbiased THEN 1.0 ELSE 0.0 END))
        END AS std
    FROM centered
),
scaled AS (
    SELECT run_id, rollout_id, CASE WHEN $std_level IS NULL THEN difference ELSE difference / (std + $eps) END AS credit
    FROM spread
    WHERE $group_key IS NOT NULL
),
keyed AS (
    SELECT
        run_id,
        rollout_id,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
    FROM voted
),
joined AS (
    SELECT keyed.*, scaled.credit
    FROM keyed
    LEFT JOIN scaled ON scaled.run_id = keyed.run_id AND scaled.rollout_id = keyed.rollout_id
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    credit AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM joined
