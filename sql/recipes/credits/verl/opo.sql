-- @kind credit
-- @doc verl's opo: the reward less the mean of the group, each reward weighted with its trained tokens. The only row of
--   a group keeps its reward. A rollout without a reward is no member of its group and gets no credit; one without a
--   group has nothing to be compared with.
-- @formula A = r - sum(L * r) / sum(L) over the group, L = trained tokens (view rollout_rows); r for a single row
-- @source verl/trainer/ppo/core_algos.py at commit 1dda039b, compute_opo_outcome_advantage
-- @differs The only baseline of the catalog that is weighted by length. A rollout of several rows weighs its tokens once
--   either way; votes decide only who is alone.
-- @param votes string = row : what counts once in the group: each row, as the trainer does, or each rollout
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
--   expect {"rollout_id": "a", "value": 0.8} {"rollout_id": "b", "value": -0.2} {"rollout_id": "c", "value": -0.2}
--     {"rollout_id": "d", "value": -0.2} {"rollout_id": "e", "value": 0.5} {"rollout_id": "f", "value": 0}
--     {"rollout_id": "h", "value": 0}
-- @test an output without tokens has length 0: the baseline is 3/2
--   reward {"rollout_id": "a", "group_id": "g", "value": 3} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 3}
--   calls {"call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 2}
--     {"call_id": "c", "rollout_id": "c", "call_index": 0, "output_len": 0, "output_token_ids": []}
--   expect {"rollout_id": "a", "value": 1.5} {"rollout_id": "b", "value": -1.5} {"rollout_id": "c", "value": 1.5}
WITH voted AS (
    SELECT
        reward.*,
        CASE WHEN $votes = 'row' THEN COALESCE(counted.merged_rows, 1) ELSE 1 END AS votes,
        COALESCE(counted.trained_tokens, 0) AS trained_tokens
    FROM reward
    LEFT JOIN rollout_rows AS counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
    WHERE reward.call_id IS NULL
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $group_key IS NOT NULL
        THEN
            opo(value, rollout_id, trained_tokens, singleton => 'value', votes => votes) OVER (PARTITION BY run_id, $group_key)
    END AS value,
    'group' AS baseline_scope,
    CAST($group_key AS VARCHAR) AS baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
FROM voted
