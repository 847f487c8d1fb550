-- Runs of a trainer row's trained tokens with the advantages that they have.
SELECT
    run_id, build_id, step, epoch, micro_batch, rank, row_index,
    coalesce(run['rollout_id'], rollout_id) AS rollout_id, run['call_id'] AS call_id, run['start'] AS start,
    run['length'] AS length, run['row_start'] AS row_start, run['advantage'] AS advantage,
    run['advantages'] AS advantages
FROM (
    SELECT
        run_id, build_id, step, epoch, micro_batch, rank, row_index, rollout_id,
        unnest(trained_advantages(segments, row_mask(action_mask, mask_convention), advantages)) AS run
    FROM samples
    WHERE advantages IS NOT NULL AND NOT coalesce(is_pad, false)
)
