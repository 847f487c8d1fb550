-- @question Is every trained token the one that its call gave at that place?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.segments, samples.token_ids, calls.output_token_ids
-- @examined
--   SELECT span.run_id, sum(span.length) AS examined
--   FROM trained_span AS span
--   JOIN (SELECT DISTINCT run_id, call_id FROM calls WHERE output_len IS NOT NULL) AS call
--     ON call.run_id = span.run_id AND call.call_id = span.call_id
--   GROUP BY span.run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.token_ids' AS missing,
--       concat('keep the ids of the rows; ', count(*), ' rows have none') AS remedy
--   FROM samples WHERE token_ids IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
SELECT
    run_id, step, rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index, position,
    'row' AS position_in,
    length, expected, observed,
    concat(length, ' trained tokens from row token ', position, ' on are ', observed, ' where ', call_id, ' gave ', expected) AS message
FROM row_output_faults
WHERE kind = 'token'
