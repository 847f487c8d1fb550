-- @question Does every sampled token of a build's rollouts either train, or have a reason why not?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs samples.segments, exclusions, calls.output_len
-- @examined
--   SELECT call.run_id, count(*) AS examined
--   FROM (
--     SELECT DISTINCT run_id, build_id, rollout_id FROM (
--       SELECT run_id, build_id, rollout_id FROM row_segment
--       UNION ALL
--       SELECT run_id, build_id, rollout_id FROM exclusions
--     )
--   ) AS named
--   JOIN calls AS call ON call.run_id = named.run_id AND call.rollout_id = named.rollout_id
--   WHERE call.output_len > 0 GROUP BY call.run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH traced AS (
    SELECT DISTINCT run_id, build_id FROM row_segment
),
credited AS (
    SELECT DISTINCT credit.run_id, upstream.build_id, credit.rollout_id
    FROM build_credit AS upstream
    JOIN credits_history AS credit ON credit.derivation_id = upstream.derivation_id AND credit.run_id = upstream.run_id
),
named AS (
    SELECT DISTINCT run_id, build_id, rollout_id
    FROM (
        SELECT run_id, build_id, rollout_id FROM row_segment
        UNION ALL
        SELECT run_id, build_id, rollout_id FROM samples
        UNION ALL
        SELECT run_id, build_id, rollout_id FROM exclusions
        UNION ALL
        SELECT run_id, build_id, rollout_id FROM credited
    )
    WHERE rollout_id IS NOT NULL
),
accounted AS (
    SELECT run_id, build_id, call_id, array_agg(named_struct('start', start, 'length', length) ORDER BY start) AS spans
    FROM (
        SELECT run_id, build_id, call_id, start, length FROM trained_span
        UNION ALL
        SELECT run_id, build_id, call_id, position, length FROM exclusions WHERE call_id IS NOT NULL
    )
    GROUP BY run_id, build_id, call_id
),
-- A token that trains in a row and has a reason not to.
both AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, trained.build_id,
        unnest(shared_spans(call.output_len, trained.spans, excused.spans)) AS span
    FROM (
        SELECT run_id, build_id, call_id, array_agg(named_struct('start', start, 'length', length) ORDER BY start) AS spans
        FROM trained_span GROUP BY run_id, build_id, call_id
    ) AS trained
    JOIN (
        SELECT run_id, build_id, call_id, array_agg(named_struct('start', position, 'length', length, 'reason', reason)) AS spans
        FROM exclusions WHERE call_id IS NOT NULL GROUP BY run_id, build_id, call_id
    ) AS excused
        ON excused.run_id = trained.run_id AND excused.build_id IS NOT DISTINCT FROM trained.build_id
        AND excused.call_id = trained.call_id
    JOIN (
        SELECT run_id, step, group_id, rollout_id, call_id, output_len, count(*) OVER (PARTITION BY run_id, call_id) AS copies
        FROM calls
    ) AS call ON call.run_id = trained.run_id AND call.call_id = trained.call_id
    -- An id that several calls have means none of them.
    WHERE call.copies = 1
),
left_out AS (
    SELECT DISTINCT run_id, build_id, rollout_id FROM exclusions WHERE call_id IS NULL AND rollout_id IS NOT NULL
),
uncovered AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, named.build_id,
        unnest(uncovered_spans(call.output_len, call.sampled, accounted.spans)) AS span
    FROM named
    JOIN traced ON traced.run_id = named.run_id AND traced.build_id IS NOT DISTINCT FROM named.build_id
    JOIN (
        SELECT run_id, step, group_id, rollout_id, call_id, output_len, true_spans(sampled_mask) AS sampled
        FROM calls
        WHERE output_len > 0 AND coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other'))
    ) AS call ON call.run_id = named.run_id AND call.rollout_id = named.rollout_id
    LEFT JOIN accounted
        ON accounted.run_id = named.run_id AND accounted.build_id IS NOT DISTINCT FROM named.build_id
        AND accounted.call_id = call.call_id
    LEFT JOIN left_out
        ON left_out.run_id = named.run_id AND left_out.build_id IS NOT DISTINCT FROM named.build_id
        AND left_out.rollout_id = named.rollout_id
    WHERE left_out.rollout_id IS NULL
)
SELECT
    run_id, step, group_id, rollout_id, call_id, build_id,
    span['position'] AS position,
    'output' AS position_in,
    span['length'] AS length,
    'trained, or excused in exclusions' AS expected,
    'neither' AS observed,
    concat(span['length'], ' sampled tokens of ', call_id, ' from output token ', span['position'],
        ' on are in no row of the build and have no reason in exclusions') AS message
FROM uncovered
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, build_id,
    span['position'], 'output', span['length'],
    'trained, or excused in exclusions', 'both',
    concat(span['length'], ' sampled tokens of ', call_id, ' from output token ', span['position'],
        ' on train, and exclusions say that they do not (', coalesce(span['reason'], 'no reason'), ')')
FROM both
UNION ALL
-- The same of a rollout that is left out as a whole.
SELECT
    trained.run_id, trained.step, NULL, trained.rollout_id, trained.call_id, trained.build_id,
    trained.start, 'output', trained.length,
    'trained, or excused in exclusions', 'both',
    concat(trained.length, ' sampled tokens of ', trained.call_id, ' from output token ', trained.start,
        ' on train, and exclusions leave out the whole rollout')
FROM trained_span AS trained
JOIN left_out
    ON left_out.run_id = trained.run_id AND left_out.build_id IS NOT DISTINCT FROM trained.build_id
    AND left_out.rollout_id = trained.rollout_id
