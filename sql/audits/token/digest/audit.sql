-- @question Are the stored digests those of the stored tokens?
-- @layer encoding
-- @severity error
-- @version 1
-- @outcome violation
-- @scope rollout
-- @needs calls.prompt_token_ids, calls.prompt_digest, calls.output_token_ids, calls.output_digest
-- @examined
--   SELECT run_id, count(prompt_digest) + count(output_digest) AS examined
--   FROM calls WHERE prompt_len IS NOT NULL OR output_len IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.prompt_token_ids' AS missing,
--       concat('ask the engine to return prompt token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE prompt_len IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_token_ids' AS missing,
--       concat('ask the engine to return token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE output_len IS NULL GROUP BY run_id
WITH digests AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, prompt_digest, output_digest,
        token_digest(prompt_token_ids) AS prompt_found,
        token_digest(output_token_ids) AS output_found
    FROM calls
),
pairs AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id,
        unnest([
            named_struct('of', 'prompt', 'stored', prompt_digest, 'found', prompt_found),
            named_struct('of', 'output', 'stored', output_digest, 'found', output_found)
        ]) AS pair
    FROM digests
    WHERE prompt_digest <> prompt_found OR output_digest <> output_found
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    pair['of'] AS position_in,
    pair['found'] AS expected,
    pair['stored'] AS observed,
    concat('the ', pair['of'], '''s tokens have the digest ', pair['found'], ', stored is ', pair['stored']) AS message
FROM pairs
WHERE pair['stored'] <> pair['found']
