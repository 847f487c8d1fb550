-- @question Does each token's position count from 0 within its own sequence?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.position_ids, samples.segments
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples
--   WHERE segments IS NOT NULL AND position_ids IS NOT NULL AND NOT coalesce(is_pad, false) GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.position_ids' AS missing,
--       concat('keep the positions that the trainer gave the tokens; ', count(*), ' rows of several sequences have none') AS remedy
--   FROM samples
--   WHERE position_ids IS NULL AND segments[-1]['sequence_index'] <> segments[1]['sequence_index']
--     AND NOT coalesce(is_pad, false)
--   GROUP BY run_id, build_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say where each sequence of a row begins; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND position_ids IS NOT NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH faults AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest(position_faults(segments, position_ids)) AS fault
    FROM samples
    WHERE segments IS NOT NULL AND position_ids IS NOT NULL AND NOT coalesce(is_pad, false)
)
SELECT
    run_id, step, group_id, coalesce(fault['rollout_id'], rollout_id) AS rollout_id, fault['call_id'] AS call_id, build_id,
    epoch, micro_batch, rank, row_index,
    fault['position'] AS position,
    'row' AS position_in,
    fault['length'] AS length,
    fault['expected'] AS expected,
    fault['observed'] AS observed,
    fault['message'] AS message
FROM faults
