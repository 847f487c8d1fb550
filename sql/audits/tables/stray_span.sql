-- Runs of a trainer row's trained tokens that are no named call's output.
SELECT
    run_id, build_id, step, epoch, micro_batch, rank, row_index, coalesce(span['rollout_id'], rollout_id) AS rollout_id, span['call_id'] AS call_id,
    span['source'] AS source, span['row_start'] AS row_start, span['length'] AS length
FROM (
    SELECT
        run_id, build_id, step, epoch, micro_batch, rank, row_index, rollout_id,
        unnest(stray_spans(cardinality(token_ids), segments, row_mask(action_mask, mask_convention))) AS span
    FROM samples
    WHERE segments IS NOT NULL AND NOT coalesce(is_pad, false)
)
