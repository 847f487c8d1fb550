-- @question Do the segments tile their row, sequence after sequence, and does attention end where they do?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.segments, samples.token_ids, samples.cu_seqlens, calls.rollout_id
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples
--   WHERE segments IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH faults AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest(tiling_faults(segments, coalesce(cardinality(token_ids), cardinality(action_mask)), cu_seqlens)) AS fault
    FROM samples
    WHERE segments IS NOT NULL
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
UNION ALL
-- A call belongs to one rollout; an id that several calls have means none of them.
SELECT
    part.run_id, part.step, NULL, part.rollout_id, part.call_id, part.build_id, part.epoch, part.micro_batch, part.rank, part.row_index,
    part.row_start, 'row', part.length, call.rollout_id AS expected, concat(part.rollout_id) AS observed,
    concat('row token ', part.row_start, ': the segment says that call ', part.call_id, ' is of rollout ', part.rollout_id, ', and it is of ',
        call.rollout_id)
FROM row_segment AS part
JOIN calls AS call ON call.run_id = part.run_id AND call.call_id = part.call_id
LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = part.run_id AND doubled.call_id = part.call_id
WHERE call.rollout_id <> part.rollout_id
