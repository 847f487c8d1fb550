-- @kind credit
-- @doc NeMo-RL's gdpo: each score less the mean of the others in its group, over their standard deviation; the sum is
--   normalized over the batch. The reward that it is run over decides who takes part; the scores are those of the
--   rollouts' verifiers. A rollout without a reward is no member of its group and gets no credit; one without a
--   group has nothing to be compared with.
-- @formula z_k as nemo-rl/grpo for each score; a = sum(w_k * z_k); A = (a - mean(a)) / std(a) over the batch, ddof 1, without
--   eps; a - mean(a) where std(a) is 0
-- @source NeMo RL at commit 7ea279ab, nemo_rl/algorithms/advantage_estimator.py, GDPOAdvantageEstimator (its weights are a
--   list in the order of the components' names)
-- @differs No eps at the second level (trl/normalize_then_sum: 1e-4; verl/gdpo: over tokens, sqrt(var +
--   1e-8)); leave-one-out at the first.
-- @param use_leave_one_out_baseline boolean = true : whether statistics are those of the others
-- @param normalize_rewards boolean = true : false does not divide each score
-- @param reward_weights json = null : weight of each verifier that takes part, as {"correct": 1, "format": 0.2}; null = all,
--   with weight 1
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check NeMo RL's gdpo wants two components or more; the scores have {found}: use nemo-rl/grpo
--   SELECT run_id, count(DISTINCT verifier) AS found
--   FROM scores
--   WHERE call_id IS NULL AND ($reward_weights IS NULL OR json_get_float($reward_weights, verifier) IS NOT NULL)
--     AND run_id IN (SELECT run_id FROM reward)
--   GROUP BY run_id
--   HAVING count(DISTINCT verifier) < 2
--   ORDER BY run_id
--   LIMIT 1
-- @check no score comes from verifier {verifier}, which has a weight
--   SELECT weighted.verifier
--   FROM (SELECT unnest(json_object_keys($reward_weights)) AS verifier) AS weighted
--   LEFT JOIN (SELECT DISTINCT verifier FROM scores WHERE call_id IS NULL) AS known ON known.verifier = weighted.verifier
--   WHERE $reward_weights IS NOT NULL AND known.verifier IS NULL
--   ORDER BY weighted.verifier
--   LIMIT 1
-- @check rollout {rollout_id} of run {run_id} has no valid score of {verifier}
--   SELECT reward.run_id, reward.rollout_id, wanted.verifier
--   FROM (SELECT run_id, rollout_id FROM reward WHERE call_id IS NULL AND value IS NOT NULL) AS reward
--   JOIN (
--     SELECT DISTINCT run_id AS scored_run, verifier FROM scores
--     WHERE call_id IS NULL AND ($reward_weights IS NULL OR json_get_float($reward_weights, verifier) IS NOT NULL)
--   ) AS wanted ON wanted.scored_run = reward.run_id
--   LEFT JOIN (SELECT * FROM scores WHERE call_id IS NULL AND COALESCE(is_valid, true) AND value IS NOT NULL) AS score
--     ON score.run_id = reward.run_id AND score.rollout_id = reward.rollout_id AND score.verifier = wanted.verifier
--   WHERE score.rollout_id IS NULL
--   ORDER BY reward.run_id, reward.rollout_id, wanted.verifier
--   LIMIT 1
-- @test one of four wins
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--   scores {"rollout_id": "a", "verifier": "x", "value": 1} {"rollout_id": "b", "verifier": "x", "value": 0}
--     {"rollout_id": "c", "verifier": "x", "value": 0} {"rollout_id": "d", "verifier": "x", "value": 0}
--     {"rollout_id": "a", "verifier": "y", "value": 0} {"rollout_id": "b", "verifier": "y", "value": 2}
--     {"rollout_id": "c", "verifier": "y", "value": 1} {"rollout_id": "d", "verifier": "y", "value": 1}
--   expect {"rollout_id": "a", "value": -0.8516941739427731} {"rollout_id": "b", "value": 1.4480351381382732}
--     {"rollout_id": "c", "value": -0.29817048209775} {"rollout_id": "d", "value": -0.29817048209775}
-- @test a weight for each verifier
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--   scores {"rollout_id": "a", "verifier": "x", "value": 1} {"rollout_id": "b", "verifier": "x", "value": 0}
--     {"rollout_id": "c", "verifier": "x", "value": 0} {"rollout_id": "d", "verifier": "x", "value": 0}
--     {"rollout_id": "a", "verifier": "y", "value": 0} {"rollout_id": "b", "verifier": "y", "value": 2}
--     {"rollout_id": "c", "verifier": "y", "value": 1} {"rollout_id": "d", "verifier": "y", "value": 1}
--   param reward_weights={"x": 1, "y": 0.5}
--   expect {"rollout_id": "a", "value": 0.05198390670790759} {"rollout_id": "b", "value": 1.3960360790162556}
--     {"rollout_id": "c", "value": -0.7240099928620816} {"rollout_id": "d", "value": -0.7240099928620816}
-- @test one verifier is too few
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   scores {"rollout_id": "a", "verifier": "x", "value": 1}
--   error NeMo RL's gdpo wants two components or more; the scores have 1
WITH weighted AS (
    SELECT DISTINCT
        run_id AS scored_run,
        verifier,
        CASE WHEN $reward_weights IS NULL THEN 1.0 ELSE json_get_float($reward_weights, verifier) END AS weight
    FROM scores
    WHERE call_id IS NULL
),
scored AS (
    SELECT
        reward.*,
        weighted.verifier,
        weighted.weight,
        CASE WHEN COALESCE(score.is_valid, true) THEN score.value END AS score
    FROM (SELECT * FROM reward WHERE call_id IS NULL AND value IS NOT NULL) AS reward
    JOIN (SELECT * FROM weighted WHERE weight IS NOT NULL) AS weighted ON weighted.scored_run = reward.run_id
    LEFT JOIN (SELECT * FROM scores WHERE call_id IS NULL) AS score
        ON score.run_id = reward.run_id AND score.rollout_id = reward.rollout_id AND score.verifier = weighted.verifier
),
normalized AS (
    SELECT
        run_id,
        rollout_id,
        weight * CASE
            WHEN $normalize_rewards AND $use_leave_one_out_baseline
            THEN grpo(score, rollout_id, leave_one_out => true) OVER (PARTITION BY run_id, verifier, $group_key)
            WHEN $normalize_rewards THEN grpo(score, rollout_id) OVER (PARTITION BY run_id, verifier, $group_key)
            WHEN $use_leave_one_out_baseline THEN rloo(score, rollout_id) OVER (PARTITION BY run_id, verifier, $group_key)
            ELSE dr_grpo(score, rollout_id) OVER (PARTITION BY run_id, verifier, $group_key)
        END AS z
    FROM scored
    WHERE $group_key IS NOT NULL
),
added AS (
    SELECT run_id, rollout_id, exact_sum(z) AS credit
    FROM normalized
    GROUP BY run_id, rollout_id
),
keyed AS (
    SELECT
        run_id,
        rollout_id,
        value,
        CAST($batch_key AS VARCHAR) AS batch,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
    FROM reward
    WHERE call_id IS NULL
),
summed AS (
    SELECT keyed.*, added.credit
    FROM keyed
    LEFT JOIN added ON added.run_id = keyed.run_id AND added.rollout_id = keyed.rollout_id
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    grpo(credit, rollout_id, eps => 0) OVER (PARTITION BY run_id, batch) AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM summed
