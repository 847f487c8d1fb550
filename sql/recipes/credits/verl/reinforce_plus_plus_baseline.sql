-- @kind credit
-- @doc verl's reinforce_plus_plus_baseline: the reward less the group's mean on every trained token, whitened over the
--   tokens of the batch. The only row of a group keeps its reward before whitening. A rollout without a reward is no
--   member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula a = r - mean of the group (r for a single row); A = (a - m) / sqrt(v + 1e-8), m = sum(T * a) / (N + 1e-8), v =
--   sum(T * (a - m)^2) / (N + 1e-8) * N / (N - 1), T = trained tokens, N = sum(T)
-- @source verl/trainer/ppo/core_algos.py at commit 1dda039b, compute_reinforce_plus_plus_baseline_outcome_advantage;
--   masked_whiten in verl/utils/torch_functional.py
-- @differs Whitens over tokens with the sample variance (NeMo-RL, OpenRLHF: over tokens with the population variance; rLLM:
--   over rollouts, without a mean; slime: not at all). With votes=row a rollout that became several rows (one for
--   each chain of exact extensions, view rollout_rows) counts once for each of them; votes=rollout is the corrected
--   form.
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
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
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   calls {"call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 200}
--     {"call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 400}
--     {"call_id": "c", "rollout_id": "c", "call_index": 0, "output_len": 100}
--     {"call_id": "d", "rollout_id": "d", "call_index": 0, "output_len": 300}
--     {"call_id": "e", "rollout_id": "e", "call_index": 0, "output_len": 10}
--     {"call_id": "f", "rollout_id": "f", "call_index": 0, "output_len": 10}
--     {"call_id": "h", "rollout_id": "h", "call_index": 0, "output_len": 10}
--   expect {"rollout_id": "a", "value": 1.9939724070512135} {"rollout_id": "b", "value": -0.518310870335756}
--     {"rollout_id": "c", "value": -0.518310870335756} {"rollout_id": "d", "value": -0.518310870335756}
--     {"rollout_id": "e", "value": 1.3659015877044711} {"rollout_id": "f", "value": 0.10975994901098643}
--     {"rollout_id": "h", "value": 0.10975994901098643}
-- @test rewards whose squares are no doubles
--   reward {"rollout_id": "a", "group_id": "g", "value": 1e300} {"rollout_id": "b", "group_id": "g", "value": -1e300}
--   calls {"call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 1}
--     {"call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 1}
--   expect {"rollout_id": "a", "value": 0.7071067829543145} {"rollout_id": "b", "value": -0.7071067829543145}
-- @test an output without tokens counts in the group, and no token in the batch
--   reward {"rollout_id": "a", "group_id": "g", "value": 3} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 3}
--   calls {"call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 2}
--     {"call_id": "c", "rollout_id": "c", "call_index": 0, "output_len": 0, "output_token_ids": []}
--   expect {"rollout_id": "a", "value": 0.8660254027019069} {"rollout_id": "b", "value": -0.8660254041452827} {"rollout_id": "c", "value": 0.8660254027019069}
WITH voted AS (
    SELECT
        reward.*,
        CASE WHEN $votes = 'row' THEN COALESCE(known.merged_rows, 1) ELSE 1 END AS votes,
        COALESCE(known.trained_tokens, 0) AS trained_tokens
    FROM reward
    LEFT JOIN rollout_rows AS known ON known.run_id = reward.run_id AND known.rollout_id = reward.rollout_id
    WHERE reward.call_id IS NULL
),
centered AS (
    SELECT
        *,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count,
        CASE
            WHEN $group_key IS NOT NULL
            THEN dr_grpo(value, rollout_id, singleton => 'value', votes => votes) OVER (PARTITION BY run_id, $group_key)
        END AS centered
    FROM voted
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
            greatest(1.0, COALESCE(max(abs(centered)) OVER (PARTITION BY run_id, $batch_key) / 1e100, 1.0)) AS unit
        FROM centered
    )
),
summed AS (
    SELECT
        *,
        rollout_sum(weight, rollout_id) OVER (PARTITION BY run_id, $batch_key) AS tokens,
        rollout_sum(weight * x, rollout_id) OVER (PARTITION BY run_id, $batch_key) AS total
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
        rollout_sum(weight * difference * difference, rollout_id) OVER (PARTITION BY run_id, $batch_key) / (tokens + 1e-8) * tokens / (tokens - 1.0) AS variance
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
