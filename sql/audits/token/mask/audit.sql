-- @question Was every trained token sampled, and meant to be trained?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.segments, samples.action_mask, calls.sampled_mask, calls.action_mask, calls.is_trainable
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples WHERE segments IS NOT NULL AND NOT coalesce(is_pad, false) GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH denied AS (
    SELECT
        span.run_id, span.step, span.rollout_id, span.call_id, span.build_id, span.epoch, span.micro_batch, span.rank, span.row_index, span.row_start, span.start,
        unnest(unsampled_spans(span.start, span.length, call.sampled_mask, call.action_mask)) AS fault
    FROM trained_span AS span
    JOIN (
        SELECT run_id, rollout_id, call_id, sampled_mask, action_mask FROM calls
        WHERE (sampled_mask IS NOT NULL OR action_mask IS NOT NULL)
            AND coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other'))
    ) AS call
        ON call.run_id = span.run_id AND call.call_id = span.call_id
        AND (span.rollout_id IS NULL OR call.rollout_id IS NULL OR call.rollout_id = span.rollout_id)
)
SELECT
    run_id, step, rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index,
    row_start AS position,
    'row' AS position_in,
    length,
    'not trained' AS expected,
    'trained' AS observed,
    concat(length, ' tokens from row token ', row_start, ' on train, but their segment is ', source, ': no call sampled them') AS message
FROM stray_span
WHERE source IN ('prompt', 'boundary', 'pad')
UNION ALL
SELECT
    run_id, step, rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index,
    row_start + (fault['position'] - start), 'row', fault['length'], 'not trained', 'trained',
    concat(fault['length'], ' tokens from row token ', row_start + (fault['position'] - start), ' on train, but ', call_id, '''s ',
        fault['mask'], ' is false for them')
FROM denied
UNION ALL
SELECT
    span.run_id, span.step, span.rollout_id, span.call_id, span.build_id, span.epoch, span.micro_batch, span.rank, span.row_index, span.row_start, 'row', span.length,
    'not trained', 'trained',
    concat(span.length, ' tokens from row token ', span.row_start, ' on train, but ', span.call_id, ' is not meant to be trained')
FROM trained_span AS span
JOIN (
    SELECT DISTINCT run_id, rollout_id, call_id FROM calls
    WHERE NOT coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other'))
) AS call
    ON call.run_id = span.run_id AND call.call_id = span.call_id
    AND (span.rollout_id IS NULL OR call.rollout_id IS NULL OR call.rollout_id = span.rollout_id)
