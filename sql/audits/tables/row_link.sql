-- Calls that train in a trainer row after another call's output.
SELECT
    run_id, build_id, step, epoch, micro_batch, rank, row_index, coalesce(link['rollout_id'], rollout_id) AS rollout_id, link['call_id'] AS call_id,
    link['previous_call_id'] AS previous_call_id, link['row_start'] AS row_start
FROM (
    SELECT
        run_id, build_id, step, epoch, micro_batch, rank, row_index, rollout_id,
        unnest(row_links(segments, row_mask(action_mask, mask_convention))) AS link
    FROM samples
    WHERE segments IS NOT NULL AND NOT coalesce(is_pad, false)
)
