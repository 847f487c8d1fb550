-- @question Do action_mask, segments, loss weights and advantages agree on which tokens train?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.action_mask, samples.segments, samples.loss_weights, samples.advantages
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples
--   WHERE (action_mask IS NOT NULL OR segments IS NOT NULL) AND NOT coalesce(is_pad, false) GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.action_mask' AS missing,
--       concat('say which tokens of a row train; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE action_mask IS NULL AND segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('keep a second account of what trains, segments or loss_weights; ', count(*), ' rows have the mask alone') AS remedy
--   FROM samples
--   WHERE action_mask IS NOT NULL AND segments IS NULL AND loss_weights IS NULL AND NOT coalesce(is_pad, false)
--   GROUP BY run_id, build_id
WITH faults AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest(mask_faults(segments, row_mask(action_mask, mask_convention), loss_weights, advantages)) AS fault
    FROM samples
    WHERE (action_mask IS NOT NULL OR segments IS NOT NULL) AND NOT coalesce(is_pad, false)
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
