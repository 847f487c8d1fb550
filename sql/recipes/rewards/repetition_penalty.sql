-- @kind reward
-- @doc A reward less a penalty for n-grams of output tokens that repeat. They are counted within each trainable call, and the
--   share is over all calls of the rollout. A rollout without a reward stays without one; a NaN or infinite reward is an error.
-- @formula r' = r + max_penalty * repeated / all, over the n-grams of the rollout's outputs; 0 where there is none
-- @source TRL get_repetition_penalty_reward, n 3, max_penalty -1 (over one output of token ids); arXiv 2502.03373
-- @param n long = 3 : tokens of an n-gram
-- @param max_penalty double = -1 : added where every n-gram repeats
-- @check n must be at least 1, not {n}
--   SELECT $n AS n WHERE NOT COALESCE($n >= 1, false)
-- @check max_penalty {max_penalty} is above 0: it would reward repetition
--   SELECT $max_penalty AS max_penalty WHERE $max_penalty > 0
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test one of two pairs repeats in the first call, none of the three in the second
--   reward {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 1} {"rollout_id": "c", "value": null}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "prompt_token_ids": [], "output_token_ids": [7, 7, 7]}
--     {"rollout_id": "a", "call_id": "a1", "call_index": 1, "prompt_token_ids": [], "output_token_ids": [7, 7, 8, 9]}
--     {"rollout_id": "a", "call_id": "a2", "call_index": 2, "output_token_ids": [7, 7, 7, 7], "kind": "judge"}
--     {"rollout_id": "b", "call_id": "b0", "prompt_token_ids": [], "output_token_ids": [7]}
--   param n=2
--   param max_penalty=-0.5
--   expect {"rollout_id": "a", "value": 0.9} {"rollout_id": "b", "value": 1} {"rollout_id": "c", "value": null}
WITH counted AS (
    SELECT
        run_id,
        rollout_id,
        sum(repeated_ngrams(output_token_ids, $n)) AS repeated,
        sum(greatest(CAST(0 AS BIGINT), CAST(output_len AS BIGINT) + 1 - $n)) AS ngrams
    FROM calls
    WHERE COALESCE(is_trainable, COALESCE(kind, 'act') IN ('act', 'compact')) AND output_token_ids IS NOT NULL
    GROUP BY run_id, rollout_id
)
SELECT
    reward.run_id,
    reward.rollout_id,
    reward.call_id,
    reward.value + CASE WHEN counted.ngrams > 0 THEN $max_penalty * counted.repeated / counted.ngrams ELSE 0.0 END AS value,
    reward.exclusion_reason,
    reward.components,
    reward.score_ids
FROM reward
LEFT JOIN counted ON counted.run_id = reward.run_id AND counted.rollout_id = reward.rollout_id
