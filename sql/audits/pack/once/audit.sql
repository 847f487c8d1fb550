-- @question Does every sampled token train at most once an epoch?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs samples.segments, samples.epoch
-- @examined
--   SELECT run_id, sum(length) AS examined FROM trained_span GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH place AS (
    SELECT run_id, build_id, coalesce(epoch, 0) AS epoch, call_id, start, start + length AS stop FROM trained_span
),
several AS (
    SELECT run_id, build_id, epoch, call_id FROM place GROUP BY run_id, build_id, epoch, call_id HAVING count(*) > 1
),
-- Narrow columns tell which calls have an overlap at all; of these alone the rows are gathered.
overlap AS (
    SELECT DISTINCT run_id, build_id, epoch, call_id
    FROM (
        SELECT
            place.*,
            max(place.stop) OVER (
                PARTITION BY place.run_id, place.build_id, place.epoch, place.call_id ORDER BY place.start, place.stop
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS before
        FROM several
        JOIN place
            ON place.run_id = several.run_id AND place.build_id IS NOT DISTINCT FROM several.build_id
            AND place.epoch = several.epoch AND place.call_id = several.call_id
    )
    WHERE start < before
),
used AS (
    SELECT
        span.run_id, span.build_id, overlap.epoch, span.call_id,
        min(span.rollout_id) AS rollout_id,
        in_order(array_agg(named_struct(
            'step', span.step, 'optimizer_step', span.optimizer_step, 'rank', span.rank, 'micro_batch', span.micro_batch,
            'row_index', span.row_index, 'start', span.start, 'row_start', span.row_start, 'length', span.length,
            'place', concat_ws(', ',
                concat('step ', coalesce(span.optimizer_step, span.step)),
                'micro-batch ' || CAST(span.micro_batch AS VARCHAR),
                'rank ' || CAST(span.rank AS VARCHAR),
                concat('row ', span.row_index, ' from token ', span.row_start))
        ))) AS uses
    FROM trained_span AS span
    JOIN overlap
        ON overlap.run_id = span.run_id AND overlap.build_id IS NOT DISTINCT FROM span.build_id
        AND overlap.epoch = coalesce(span.epoch, 0) AND overlap.call_id = span.call_id
    GROUP BY span.run_id, span.build_id, overlap.epoch, span.call_id
),
repeated AS (
    SELECT *, uses[span['last']] AS last
    FROM (SELECT run_id, build_id, epoch, rollout_id, call_id, uses, unnest(repeated_spans(uses)) AS span FROM used)
)
SELECT
    run_id, last['step'] AS step, rollout_id, call_id, build_id, epoch,
    last['micro_batch'] AS micro_batch,
    last['rank'] AS rank,
    last['row_index'] AS row_index,
    span['position'] AS position,
    'output' AS position_in,
    span['length'] AS length,
    'once' AS expected,
    concat(span['times'], ' times: ', span['places']) AS observed,
    concat(span['length'], ' output tokens of ', call_id, ' from ', span['position'], ' on train ', span['times'],
        ' times in epoch ', epoch, ': ', span['places']) AS message
FROM repeated
