-- @kind credit
-- @doc TRL's multi_objective_aggregation=normalize_then_sum (GDPO): each score is normalized in its group, the weighted
--   sum of those there are is normalized over the batch. The reward that it is run over decides who takes part; the
--   scores are those of the rollouts' verifiers. A rollout without a reward is no member of its group and gets no
--   credit; one without a group has nothing to be compared with.
-- @formula z_k = (s_k - mean_k) / (std_k + 1e-4) over the scores there are; a = sum(w_k * z_k) over the z_k there are; A =
--   (a - mean(a)) / (std(a) + 1e-4) over the batch; ddof 1 in both
-- @source trl/trainer/grpo_trainer.py (multi_objective_aggregation, reward_weights); arXiv 2601.05242 (GDPO)
-- @differs eps 1e-4 at both levels; a missing score is left out of the sum (verl/gdpo and nemo-rl/gdpo want every score).
--   Normalizes over rows (verl/gdpo: over tokens).
-- @param reward_weights json = null : verifier to weight, as {"correct": 1, "format": 0.2}; null = every verifier with
--   weight 1
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check no score comes from verifier {verifier}, which has a weight
--   SELECT weighted.verifier
--   FROM (SELECT unnest(json_object_keys($reward_weights)) AS verifier) AS weighted
--   LEFT JOIN (SELECT DISTINCT verifier FROM scores WHERE call_id IS NULL) AS known ON known.verifier = weighted.verifier
--   WHERE $reward_weights IS NOT NULL AND known.verifier IS NULL
--   ORDER BY weighted.verifier
--   LIMIT 1
-- @test one of four wins
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--   scores {"rollout_id": "a", "verifier": "x", "value": 1} {"rollout_id": "b", "verifier": "x", "value": 0}
--     {"rollout_id": "c", "verifier": "x", "value": 0} {"rollout_id": "d", "verifier": "x", "value": 0}
--     {"rollout_id": "a", "verifier": "y", "value": 0} {"rollout_id": "b", "verifier": "y", "value": 2}
--     {"rollout_id": "c", "verifier": "y", "value": 1} {"rollout_id": "d", "verifier": "y", "value": 1}
--   param reward_weights={"x": 1, "y": 0.5}
--   expect {"rollout_id": "a", "value": 1.3478997986679233} {"rollout_id": "b", "value": 0.17072348423706873}
--     {"rollout_id": "c", "value": -0.759311641452496} {"rollout_id": "d", "value": -0.759311641452496}
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
        weight,
        grpo(score, rollout_id, eps => 1e-4) OVER (PARTITION BY run_id, verifier, $group_key) AS z
    FROM scored
    WHERE $group_key IS NOT NULL
),
added AS (
    SELECT run_id, rollout_id, COALESCE(exact_sum(weight * z), 0.0) AS credit
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
    grpo(credit, rollout_id, eps => 1e-4) OVER (PARTITION BY run_id, batch) AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM summed
