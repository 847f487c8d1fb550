-- @kind credit
-- @doc verl's gdpo: each score is normalized in its group as in verl/grpo, the weighted sum is whitened over the tokens
--   of the batch. The reward that it is run over decides who takes part; the scores are those of the rollouts'
--   verifiers. A rollout without a reward is no member of its group and gets no credit; one without a group has
--   nothing to be compared with.
-- @formula z_k = (s_k - mean_k) / (std_k + epsilon) in the group; a = sum(w_k * z_k); A = (a - m) / sqrt(v + 1e-8) over
--   tokens, as verl/reinforce_plus_plus_baseline
-- @source verl/trainer/ppo/core_algos.py at commit 1dda039b, compute_gdpo_outcome_advantage
-- @differs Whitens over tokens (trl/normalize_then_sum and nemo-rl/gdpo: over rows). With votes=row a rollout that became
--   several rows (one for each chain of exact extensions, view rollout_rows) counts once for each of them;
--   votes=rollout is the corrected form.
-- @param gdpo_reward_weights json = null : verifier to weight, as {"correct": 1, "format": 0.2}; null = every verifier
--   with weight 1
-- @param epsilon double = 1e-6 : added to the standard deviation in the group
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
-- @check no score comes from verifier {verifier}, which has a weight
--   SELECT weighted.verifier
--   FROM (SELECT unnest(json_object_keys($gdpo_reward_weights)) AS verifier) AS weighted
--   LEFT JOIN (SELECT DISTINCT verifier FROM scores WHERE call_id IS NULL) AS known ON known.verifier = weighted.verifier
--   WHERE $gdpo_reward_weights IS NOT NULL AND known.verifier IS NULL
--   ORDER BY weighted.verifier
--   LIMIT 1
-- @check rollout {rollout_id} of run {run_id} has no valid score of {verifier}
--   SELECT reward.run_id, reward.rollout_id, wanted.verifier
--   FROM (SELECT run_id, rollout_id FROM reward WHERE call_id IS NULL AND value IS NOT NULL) AS reward
--   JOIN (
--     SELECT DISTINCT run_id AS scored_run, verifier FROM scores
--     WHERE call_id IS NULL AND ($gdpo_reward_weights IS NULL OR json_get_float($gdpo_reward_weights, verifier) IS NOT NULL)
--   ) AS wanted ON wanted.scored_run = reward.run_id
--   LEFT JOIN (SELECT * FROM scores WHERE call_id IS NULL AND COALESCE(is_valid, true) AND value IS NOT NULL) AS score
--     ON score.run_id = reward.run_id AND score.rollout_id = reward.rollout_id AND score.verifier = wanted.verifier
--   WHERE score.rollout_id IS NULL
--   ORDER BY reward.run_id, reward.rollout_id, wanted.verifier
--   LIMIT 1
-- @check rollout {rollout_id} of run {run_id} has a reward, but no call with a known output: import its calls
--   SELECT reward.run_id, reward.rollout_id
--   FROM reward
--   LEFT JOIN (SELECT DISTINCT run_id AS known_run, rollout_id AS known_rollout FROM calls WHERE output_len IS NOT NULL) AS known
--     ON known.known_run = reward.run_id AND known.known_rollout = reward.rollout_id
--   WHERE reward.call_id IS NULL AND reward.value IS NOT NULL AND known.known_rollout IS NULL
--   ORDER BY reward.run_id, reward.rollout_id
--   LIMIT 1
-- @check the batch {batch} of run {run_id} trains {tokens} tokens: verl cannot whiten one
--   SELECT run_id, batch, tokens
--   FROM (
--     SELECT reward.run_id, CAST($batch_key AS VARCHAR) AS batch, sum(counted.trained_tokens) AS tokens
--     FROM (SELECT * FROM reward WHERE call_id IS NULL AND value IS NOT NULL) AS reward
--     JOIN (SELECT run_id AS known_run, rollout_id AS known_rollout, trained_tokens FROM rollout_rows) AS counted
--       ON counted.known_run = reward.run_id AND counted.known_rollout = reward.rollout_id
--     GROUP BY reward.run_id, CAST($batch_key AS VARCHAR)
--   )
--   WHERE tokens <= 1
--   ORDER BY run_id, batch
--   LIMIT 1
-- @test one of four wins
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--   scores {"rollout_id": "a", "verifier": "x", "value": 1} {"rollout_id": "b", "verifier": "x", "value": 0}
--     {"rollout_id": "c", "verifier": "x", "value": 0} {"rollout_id": "d", "verifier": "x", "value": 0}
--     {"rollout_id": "a", "verifier": "y", "value": 0} {"rollout_id": "b", "verifier": "y", "value": 2}
--     {"rollout_id": "c", "verifier": "y", "value": 1} {"rollout_id": "d", "verifier": "y", "value": 1}
--   calls {"call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 200}
--     {"call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 400}
--     {"call_id": "c", "rollout_id": "c", "call_index": 0, "output_len": 100}
--     {"call_id": "d", "rollout_id": "d", "call_index": 0, "output_len": 300}
--   param gdpo_reward_weights={"x": 1, "y": 0.5}
--   expect {"rollout_id": "a", "value": 1.6889756776556453} {"rollout_id": "b", "value": 0.17550210944030017}
--     {"rollout_id": "c", "value": -1.0199899482670258} {"rollout_id": "d", "value": -1.0199899482670258}
-- @test another run has another verifier
--   reward {"run_id": "q", "rollout_id": "a", "group_id": "g", "value": 1} {"run_id": "q", "rollout_id": "b", "group_id": "g", "value": 0}
--     {"run_id": "p", "rollout_id": "a", "group_id": "g", "value": 1} {"run_id": "p", "rollout_id": "b", "group_id": "g", "value": 0}
--   scores {"run_id": "q", "rollout_id": "a", "verifier": "x", "value": 1} {"run_id": "q", "rollout_id": "b", "verifier": "x", "value": 0}
--     {"run_id": "p", "rollout_id": "a", "verifier": "y", "value": 2} {"run_id": "p", "rollout_id": "b", "verifier": "y", "value": 6}
--   calls {"run_id": "q", "call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 1}
--     {"run_id": "q", "call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"run_id": "p", "call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 1}
--     {"run_id": "p", "call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 1}
--   expect {"run_id": "q", "rollout_id": "a", "value": 0.7071067794187705} {"run_id": "q", "rollout_id": "b", "value": -0.7071067794187705}
--     {"run_id": "p", "rollout_id": "a", "value": -0.7071067794187781} {"run_id": "p", "rollout_id": "b", "value": 0.7071067794187781}
WITH weighted AS (
    SELECT DISTINCT
        run_id AS scored_run,
        verifier,
        CASE WHEN $gdpo_reward_weights IS NULL THEN 1.0 ELSE json_get_float($gdpo_reward_weights, verifier) END AS weight
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
counted_rows AS (
    SELECT
        scored.*,
        CASE WHEN $votes = 'row' THEN COALESCE(known.merged_rows, 1) ELSE 1 END AS votes
    FROM scored
    LEFT JOIN rollout_rows AS known ON known.run_id = scored.run_id AND known.rollout_id = scored.rollout_id
),
normalized AS (
    SELECT
        run_id,
        rollout_id,
        weight,
        grpo(score, rollout_id, eps => $epsilon, singleton => 'unit_std', votes => votes)
            OVER (PARTITION BY run_id, verifier, $group_key) AS z
    FROM counted_rows
    WHERE $group_key IS NOT NULL
),
added AS (
    SELECT run_id, rollout_id, exact_sum(weight * z) AS centered
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
centered AS (
    SELECT keyed.*, added.centered, COALESCE(known.trained_tokens, 0) AS trained_tokens
    FROM keyed
    LEFT JOIN added ON added.run_id = keyed.run_id AND added.rollout_id = keyed.rollout_id
    LEFT JOIN rollout_rows AS known ON known.run_id = keyed.run_id AND known.rollout_id = keyed.rollout_id
),
counted AS (
    -- Over the largest where squares would leave the doubles.
    SELECT
        *,
        CASE WHEN centered IS NOT NULL THEN CAST(trained_tokens AS DOUBLE) END AS weight,
        centered / unit AS x
    FROM (
        SELECT
            *,
            greatest(1.0, COALESCE(max(abs(centered)) OVER (PARTITION BY run_id, batch) / 1e100, 1.0)) AS unit
        FROM centered
    )
),
summed AS (
    SELECT
        *,
        rollout_sum(weight, rollout_id) OVER (PARTITION BY run_id, batch) AS tokens,
        rollout_sum(weight * x, rollout_id) OVER (PARTITION BY run_id, batch) AS total
    FROM counted
),
spread AS (
    SELECT
        *,
        x - total / (tokens + 1e-8) AS difference
    FROM summed
),
varied AS (
    SELECT
        *,
        rollout_sum(weight * difference * difference, rollout_id) OVER (PARTITION BY run_id, batch) / (tokens + 1e-8) * tokens / (tokens - 1.0) AS variance
    FROM spread
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    difference / sqrt(variance + 1e-8 / unit / unit) AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM varied
