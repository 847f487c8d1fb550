-- What stands before each call's trained tokens in a trainer row, as lengths and a digest.
--
-- output_seen: the call's output before its last trained token here, where some of that does not train; else null.
SELECT
    run_id, build_id, row_index, context['rollout_id'] AS rollout_id, context['call_id'] AS call_id,
    context['prompt_len'] AS prompt_len, context['prompt_digest'] AS prompt_digest, context['output_seen'] AS output_seen
FROM (
    SELECT run_id, build_id, row_index, unnest(row_contexts(token_ids, segments, row_mask(action_mask, mask_convention))) AS context
    FROM samples
    WHERE segments IS NOT NULL AND token_ids IS NOT NULL AND NOT coalesce(is_pad, false)
)
