-- @question Does a packed sequence's first token train only after its own context?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.segments, samples.position_ids, samples.action_mask
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples
--   WHERE (segments IS NOT NULL OR (position_ids IS NOT NULL AND action_mask IS NOT NULL)) AND NOT coalesce(is_pad, false) GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say where each sequence of a row begins, or keep position_ids; ', count(*), ' rows do neither') AS remedy
--   FROM samples WHERE segments IS NULL AND position_ids IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.action_mask' AS missing,
--       concat('say which tokens of a row train; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE action_mask IS NULL AND segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH faults AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, row_index,
        unnest(border_faults(segments, position_ids, row_mask(action_mask, mask_convention))) AS fault
    FROM samples
    WHERE (segments IS NOT NULL OR (position_ids IS NOT NULL AND action_mask IS NOT NULL)) AND NOT coalesce(is_pad, false)
)
SELECT
    run_id, step, group_id, coalesce(fault['rollout_id'], rollout_id) AS rollout_id, fault['call_id'] AS call_id, build_id, row_index,
    fault['position'] AS position,
    'row' AS position_in,
    fault['length'] AS length,
    fault['expected'] AS expected,
    fault['observed'] AS observed,
    fault['message'] AS message
FROM faults
