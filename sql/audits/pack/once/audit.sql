-- @question Does every sampled token train at most once an epoch?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @needs samples.segments, samples.epoch
-- @examined
--   SELECT run_id, sum(span['length']) AS examined
--   FROM (SELECT run_id, unnest(trained_spans(segments, action_mask)) AS span FROM samples) GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH span AS (
    SELECT
        run_id, step, build_id, epoch, optimizer_step, micro_batch, rank, row_index,
        unnest(trained_spans(segments, action_mask)) AS span
    FROM samples
),
used AS (
    SELECT
        run_id, build_id, coalesce(epoch, 0) AS epoch,
        span['call_id'] AS call_id,
        min(span['rollout_id']) AS rollout_id,
        min(step) AS step,
        array_agg(named_struct(
            'start', span['start'], 'length', span['length'], 'row_index', row_index,
            'place', concat_ws(', ',
                concat('step ', coalesce(optimizer_step, step)), 'micro-batch ' || CAST(micro_batch AS VARCHAR),
                'rank ' || CAST(rank AS VARCHAR),
                concat('row ', row_index, ' from token ', span['row_start']))
        ) ORDER BY span['start']) AS uses
    FROM span
    GROUP BY run_id, build_id, coalesce(epoch, 0), span['call_id']
    HAVING count(*) > 1
),
repeated AS (
    SELECT run_id, step, build_id, epoch, rollout_id, call_id, unnest(repeated_spans(uses)) AS span
    FROM used
)
SELECT
    run_id, step, rollout_id, call_id, build_id,
    span['row_index'] AS row_index,
    span['position'] AS position,
    'output' AS position_in,
    span['length'] AS length,
    'once' AS expected,
    concat(span['times'], ' times: ', span['places']) AS observed,
    concat(span['length'], ' output tokens of ', call_id, ' from ', span['position'], ' on train ', span['times'],
        ' times in epoch ', epoch, ': ', span['places']) AS message
FROM repeated
