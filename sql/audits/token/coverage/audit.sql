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
spanned AS (
    SELECT run_id, build_id, call_id, start, length FROM trained_span
    UNION ALL
    SELECT run_id, build_id, call_id, position, length FROM exclusions WHERE call_id IS NOT NULL
),
-- How far one span alone reaches from the first token on: it holds most calls whole, and no other is looked at for them.
reach AS (
    SELECT run_id, build_id, call_id, max(coalesce(length, 2147483647)) AS reach
    FROM spanned WHERE coalesce(start, 0) = 0 GROUP BY run_id, build_id, call_id
),
-- A token that trains in a row and has a reason not to.
excused AS (
    SELECT run_id, build_id, call_id, array_agg(named_struct('start', position, 'length', length, 'reason', reason)) AS spans
    FROM exclusions WHERE call_id IS NOT NULL GROUP BY run_id, build_id, call_id
),
both AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, trained.build_id,
        unnest(shared_spans(call.output_len, trained.spans, excused.spans)) AS span
    FROM (
        SELECT span.run_id, span.build_id, span.call_id,
            array_agg(named_struct('start', span.start, 'length', span.length)) AS spans
        FROM excused
        JOIN trained_span AS span
            ON span.run_id = excused.run_id AND span.build_id IS NOT DISTINCT FROM excused.build_id
            AND span.call_id = excused.call_id
        GROUP BY span.run_id, span.build_id, span.call_id
    ) AS trained
    JOIN excused
        ON excused.run_id = trained.run_id AND excused.build_id IS NOT DISTINCT FROM trained.build_id
        AND excused.call_id = trained.call_id
    JOIN calls AS call ON call.run_id = trained.run_id AND call.call_id = trained.call_id
    LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = trained.run_id AND doubled.call_id = trained.call_id
),
left_out AS (
    SELECT DISTINCT run_id, build_id, rollout_id FROM exclusions WHERE call_id IS NULL AND rollout_id IS NOT NULL
),
wanting AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, call.output_len, call.sampled, named.build_id
    FROM named
    JOIN traced ON traced.run_id = named.run_id AND traced.build_id IS NOT DISTINCT FROM named.build_id
    JOIN (
        SELECT run_id, step, group_id, rollout_id, call_id, output_len, true_spans(sampled_mask) AS sampled
        FROM calls
        WHERE output_len > 0 AND coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other'))
    ) AS call ON call.run_id = named.run_id AND call.rollout_id = named.rollout_id
    LEFT JOIN reach
        ON reach.run_id = named.run_id AND reach.build_id IS NOT DISTINCT FROM named.build_id AND reach.call_id = call.call_id
    LEFT JOIN left_out
        ON left_out.run_id = named.run_id AND left_out.build_id IS NOT DISTINCT FROM named.build_id
        AND left_out.rollout_id = named.rollout_id
    WHERE left_out.rollout_id IS NULL AND coalesce(reach.reach, 0) < call.output_len
),
accounted AS (
    SELECT span.run_id, span.build_id, span.call_id,
        array_agg(named_struct('start', span.start, 'length', span.length)) AS spans
    FROM (SELECT DISTINCT run_id, build_id, call_id FROM wanting) AS wanting
    JOIN spanned AS span
        ON span.run_id = wanting.run_id AND span.build_id IS NOT DISTINCT FROM wanting.build_id AND span.call_id = wanting.call_id
    GROUP BY span.run_id, span.build_id, span.call_id
),
uncovered AS (
    SELECT
        wanting.run_id, wanting.step, wanting.group_id, wanting.rollout_id, wanting.call_id, wanting.build_id,
        unnest(uncovered_spans(wanting.output_len, wanting.sampled, accounted.spans)) AS span
    FROM wanting
    LEFT JOIN accounted
        ON accounted.run_id = wanting.run_id AND accounted.build_id IS NOT DISTINCT FROM wanting.build_id
        AND accounted.call_id = wanting.call_id
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
