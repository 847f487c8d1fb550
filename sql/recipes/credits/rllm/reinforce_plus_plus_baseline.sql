-- @kind credit
-- @doc rLLM's reinforce_plus_plus_baseline: the reward less the group's mean, over the standard deviation of that
--   difference in the batch. A group of one has 0; with singleton_baseline=zero, as later versions have it, its
--   reward stays. A rollout without a reward is no member of its group and gets no credit; one without a group has
--   nothing to be compared with.
-- @formula a = r - mean of the group; A = a / (std(a) + 1e-6) over the rollouts of the batch, ddof 0
-- @source rllm, trainer/algorithms/advantage.py and rl_algo.py
-- @differs Over rollouts, each once whatever its length, and without a mean in the second step (verl, NeMo-RL, OpenRLHF:
--   over tokens).
-- @param singleton_baseline string = mean : baseline of a group of one: mean, so that its credit is 0, or zero as in
--   later versions
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check singleton_baseline is {given}: it must be mean or zero
--   SELECT $singleton_baseline AS given WHERE $singleton_baseline IS NULL OR $singleton_baseline NOT IN ('mean', 'zero')
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 2.291280847499306} {"rollout_id": "b", "value": -0.7637602824997686}
--     {"rollout_id": "c", "value": -0.7637602824997686} {"rollout_id": "d", "value": -0.7637602824997686}
--     {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0}
WITH centered AS (
    SELECT
        reward.*,
        CASE
            WHEN $group_key IS NULL THEN NULL
            WHEN $singleton_baseline = 'zero' THEN dr_grpo(value, rollout_id, singleton => 'value') OVER (PARTITION BY run_id, $group_key)
            ELSE dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
        END AS centered,
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
    centered / (rollout_std(centered, rollout_id, ddof => 0) OVER (PARTITION BY run_id, $batch_key) + 1e-6) AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM centered
