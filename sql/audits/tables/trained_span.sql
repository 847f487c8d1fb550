-- Runs of a trainer row's trained tokens that name a call's output.
SELECT
    run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index,
    span['rollout_id'] AS rollout_id, span['call_id'] AS call_id, span['start'] AS start, span['length'] AS length,
    span['row_start'] AS row_start, span['sequence_index'] AS sequence_index
FROM (
    SELECT
        run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index,
        unnest(trained_spans(segments, row_mask(action_mask, mask_convention))) AS span
    FROM samples
)
