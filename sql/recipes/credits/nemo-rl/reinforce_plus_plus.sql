-- @kind credit
-- @doc NeMo-RL's reinforce_plus_plus: the reward, less the group's mean by default, normalized over the trained tokens
--   of the batch. A rollout without a reward is no member of its group and gets no credit; one without a group has
--   nothing to be compared with.
-- @formula a = r - mean of the group with minus_baseline, else r; A = (a - m) / sqrt(max(v, 1e-8)), m and v mean and
--   population variance of a over trained tokens
-- @source nemo_rl/algorithms/advantage_estimator.py, ReinforcePlusPlusAdvantageEstimator; its KL penalty in the reward is
--   not part of it here
-- @differs Subtracts the group mean by default, which others call reinforce_plus_plus_baseline. Population variance,
--   clamped at 1e-8 (verl: sample variance plus 1e-8).
-- @param minus_baseline boolean = true : whether the mean of the group is subtracted
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check rollout {rollout_id} of run {run_id} has a reward, but no trained token is known of it: import its calls
--   SELECT reward.run_id, reward.rollout_id
--   FROM reward
--   LEFT JOIN rollout_rows AS counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
--   WHERE reward.call_id IS NULL AND reward.value IS NOT NULL AND COALESCE(counted.trained_tokens, 0) = 0
--   ORDER BY reward.run_id, reward.rollout_id
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
--   expect {"rollout_id": "a", "value": 2.0256224532157883} {"rollout_id": "b", "value": -0.5110232936684207}
--     {"rollout_id": "c", "value": -0.5110232936684207} {"rollout_id": "d", "value": -0.5110232936684207}
--     {"rollout_id": "e", "value": 0.1231381430526315} {"rollout_id": "f", "value": 0.1231381430526315}
--     {"rollout_id": "h", "value": 0.1231381430526315}
WITH centered AS (
    SELECT
        reward.*,
        known.trained_tokens,
        CASE WHEN $group_key IS NULL THEN NULL WHEN $minus_baseline THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key) ELSE value END AS centered,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
    FROM (SELECT * FROM reward WHERE call_id IS NULL) AS reward
    LEFT JOIN (SELECT run_id AS known_run, rollout_id AS known_rollout, trained_tokens FROM rollout_rows) AS known
        ON known.known_run = run_id AND known.known_rollout = rollout_id
),
whitened AS (
    SELECT
        *,
        centered - rollout_mean(centered, rollout_id, weight => trained_tokens) OVER (PARTITION BY run_id, $batch_key) AS difference,
        rollout_std(centered, rollout_id, weight => trained_tokens, ddof => 0) OVER (PARTITION BY run_id, $batch_key) AS std
    FROM centered
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    difference / sqrt(greatest(std * std, 1e-8)) AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM whitened
