-- What trainer rows say of whence their tokens come.
SELECT
    run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index, coalesce(is_pad, false) AS is_pad,
    coalesce(segment['rollout_id'], rollout_id) AS rollout_id, segment['call_id'] AS call_id,
    segment['sequence_index'] AS sequence_index, segment['source'] AS source,
    segment['source_start'] AS source_start, segment['start'] AS row_start, segment['length'] AS length
FROM (
    SELECT
        run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index, rollout_id, is_pad,
        unnest(segments) AS segment
    FROM samples
)
