-- Stretches of calls' outputs in a trainer row of which a token trains, as lengths and digests.
SELECT
    run_id, build_id, row_index, used['call_id'] AS call_id, used['start'] AS start, used['length'] AS length,
    used['token_digest'] AS token_digest, used['logprob_digest'] AS logprob_digest
FROM (
    SELECT
        run_id, build_id, row_index,
        unnest(output_uses(token_ids, segments, row_mask(action_mask, mask_convention), logprobs)) AS used
    FROM samples
    WHERE segments IS NOT NULL AND token_ids IS NOT NULL AND NOT coalesce(is_pad, false)
)
