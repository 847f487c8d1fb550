-- @question Is all that went into the rows still there after they were split, merged and packed?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.segments, calls.output_len, exclusions, credits.value
-- @examined
--   SELECT run_id, count(*) AS examined FROM (
--     SELECT DISTINCT run_id, build_id, call_id FROM row_segment WHERE source = 'output' AND call_id IS NOT NULL
--   ) GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id

-- Where a sequence of a row ends or begins within a call's output. What follows in the sequence was put there instead of the rest,
-- which is a question of its tokens (token/equal, token/prefix); where nothing follows, the rest was cut off.
WITH segment AS (
    SELECT * FROM row_segment WHERE coalesce(source, '') <> 'pad' AND NOT is_pad AND length > 0
),
-- Segments that lack what their call's output has before or behind them: most builds have none, and nothing more is asked of them.
part AS (
    SELECT segment.*
    FROM segment
    JOIN calls AS call ON call.run_id = segment.run_id AND call.call_id = segment.call_id
    WHERE segment.source = 'output' AND (segment.source_start > 0 OR segment.source_start + segment.length < call.output_len)
),
edge AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, segment.build_id, call.output_len,
        array_agg(segment.source_start + segment.length) FILTER (WHERE segment.is_last) AS ends,
        array_agg(segment.source_start) FILTER (WHERE segment.is_first) AS starts
    FROM (
        SELECT
            segment.*,
            row_number() OVER (
                PARTITION BY run_id, build_id, epoch, step, optimizer_step, micro_batch, rank, row_index, sequence_index ORDER BY row_start
            ) = 1 AS is_first,
            row_number() OVER (
                PARTITION BY run_id, build_id, epoch, step, optimizer_step, micro_batch, rank, row_index, sequence_index ORDER BY row_start DESC
            ) = 1 AS is_last
        FROM segment
        LEFT SEMI JOIN part
            ON part.run_id = segment.run_id
            AND part.build_id IS NOT DISTINCT FROM segment.build_id AND part.epoch IS NOT DISTINCT FROM segment.epoch
            AND part.step IS NOT DISTINCT FROM segment.step AND part.optimizer_step IS NOT DISTINCT FROM segment.optimizer_step
            AND part.micro_batch IS NOT DISTINCT FROM segment.micro_batch AND part.rank IS NOT DISTINCT FROM segment.rank
            AND part.row_index IS NOT DISTINCT FROM segment.row_index
            AND part.sequence_index IS NOT DISTINCT FROM segment.sequence_index
    ) AS segment
    JOIN calls AS call ON call.run_id = segment.run_id AND call.call_id = segment.call_id
    LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = segment.run_id AND doubled.call_id = segment.call_id
    WHERE segment.source = 'output' AND call.output_len > 0
        AND ((segment.is_last AND segment.source_start + segment.length < call.output_len)
            OR (segment.is_first AND segment.source_start > 0))
    GROUP BY call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, segment.build_id, call.output_len
),
-- What of such calls is anywhere in the build, or has a reason not to be.
held AS (
    SELECT edge.run_id, edge.build_id, edge.call_id,
        array_agg(named_struct('start', span.start, 'length', span.length)) AS spans
    FROM edge
    JOIN (
        SELECT run_id, build_id, call_id, source_start AS start, length
        FROM row_segment
        WHERE source = 'output' AND call_id IS NOT NULL AND source_start IS NOT NULL AND NOT is_pad
        UNION ALL
        SELECT run_id, build_id, call_id, position, length FROM exclusions WHERE call_id IS NOT NULL
    ) AS span
        ON span.run_id = edge.run_id AND span.build_id IS NOT DISTINCT FROM edge.build_id AND span.call_id = edge.call_id
    GROUP BY edge.run_id, edge.build_id, edge.call_id
),
cut AS (
    SELECT
        edge.run_id, edge.step, edge.group_id, edge.rollout_id, edge.call_id, edge.build_id, edge.ends, edge.starts,
        unnest(uncovered_spans(edge.output_len, NULL, held.spans)) AS span
    FROM edge
    JOIN held
        ON held.run_id = edge.run_id AND held.build_id IS NOT DISTINCT FROM edge.build_id AND held.call_id = edge.call_id
),
named AS (
    SELECT DISTINCT run_id, build_id, rollout_id
    FROM (
        SELECT run_id, build_id, rollout_id FROM row_segment
        UNION ALL
        SELECT run_id, build_id, rollout_id FROM samples
        UNION ALL
        SELECT run_id, build_id, rollout_id FROM exclusions
    )
    WHERE rollout_id IS NOT NULL
),
-- Credits that a build names, else those of the groups of which it trains a rollout.
credited AS (
    SELECT credit.run_id, upstream.build_id, credit.rollout_id
    FROM build_credit AS upstream
    JOIN credits_history AS credit ON credit.derivation_id = upstream.derivation_id AND credit.run_id = upstream.run_id
    WHERE credit.value IS NOT NULL OR credit.token_values IS NOT NULL
    GROUP BY credit.run_id, upstream.build_id, credit.rollout_id
    UNION
    SELECT credit.run_id, in_group.build_id, credit.rollout_id
    FROM (
        SELECT DISTINCT named.run_id, named.build_id, rollout.group_id
        FROM named
        JOIN rollouts AS rollout ON rollout.run_id = named.run_id AND rollout.rollout_id = named.rollout_id
        LEFT JOIN row_build AS build ON build.run_id = named.run_id AND build.build_id = named.build_id
        WHERE rollout.group_id IS NOT NULL AND build.derivation_id IS NULL
    ) AS in_group
    JOIN rollouts AS member ON member.run_id = in_group.run_id AND member.group_id = in_group.group_id
    JOIN credits AS credit ON credit.run_id = member.run_id AND credit.rollout_id = member.rollout_id
    WHERE (credit.value IS NOT NULL OR credit.token_values IS NOT NULL)
        AND coalesce(credit.quantity, 'advantage') = 'advantage' AND member.drop_reason IS NULL
),
lost AS (
    SELECT credited.run_id, credited.build_id, credited.rollout_id
    FROM credited
    LEFT JOIN named
        ON named.run_id = credited.run_id AND named.build_id IS NOT DISTINCT FROM credited.build_id
        AND named.rollout_id = credited.rollout_id
    WHERE named.rollout_id IS NULL AND credited.rollout_id IS NOT NULL
)
SELECT
    run_id, step, group_id, rollout_id, call_id, build_id,
    span['position'] AS position,
    'output' AS position_in,
    span['length'] AS length,
    'in a row, or excused in exclusions' AS expected,
    'in no row' AS observed,
    concat(span['length'], ' output tokens of ', call_id, ' from ', span['position'], ' on are in no row, though others of the call are: ',
        'the sequence was cut') AS message
FROM cut
WHERE array_has(ends, span['position']) OR array_has(starts, span['position'] + span['length'])
UNION ALL
SELECT
    lost.run_id, rollout.step, rollout.group_id, lost.rollout_id, NULL, lost.build_id, NULL, NULL, NULL,
    'in a row, or excused in exclusions', 'in no row',
    concat('rollout ', lost.rollout_id, ' has a credit, and the build neither trains it nor says why not')
FROM lost
LEFT JOIN rollouts AS rollout ON rollout.run_id = lost.run_id AND rollout.rollout_id = lost.rollout_id
