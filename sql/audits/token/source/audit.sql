-- @question Does every trained token come from a call's output, with ids that the engine gave?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.segments, calls.output_token_ids, calls.output_exactness
-- @examined
--   SELECT run_id, sum(length) AS examined FROM trained_span GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT run_id, 'calls.output_token_ids' AS missing,
--       concat('ask the engine to return token ids; ', count(*), ' trainable calls have none, or ids that a client made from text') AS remedy
--   FROM calls
--   WHERE (output_len IS NULL OR output_exactness IN ('rendered', 'absent'))
--     AND coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other'))
--   GROUP BY run_id
WITH call AS (
    SELECT
        run_id, rollout_id, call_id, output_len, CASE WHEN output_exactness IN ('rendered', 'absent') THEN output_exactness END AS exactness
    FROM calls
    WHERE call_id IS NOT NULL
),
single AS (
    SELECT call.*
    FROM call
    LEFT ANTI JOIN doubled_call AS twice ON twice.run_id = call.run_id AND twice.call_id = call.call_id
),
doubled AS (
    SELECT call.*
    FROM doubled_call AS twice
    JOIN call ON call.run_id = twice.run_id AND call.call_id = twice.call_id
),
-- An id that several calls have is taken for the longest of them: rollout/duplicate tells of its copies.
known AS (
    SELECT run_id, rollout_id, call_id, output_len, exactness FROM single
    UNION ALL
    SELECT run_id, rollout_id, call_id, max(output_len), max(exactness) FROM doubled GROUP BY run_id, rollout_id, call_id
),
named AS (
    SELECT run_id, call_id, rollout_id, output_len, exactness FROM single
    UNION ALL
    SELECT run_id, call_id, min(rollout_id), max(output_len), max(exactness) FROM doubled GROUP BY run_id, call_id
),
traced AS (
    SELECT
        span.run_id, span.step, span.rollout_id, span.call_id, span.build_id, span.epoch, span.micro_batch, span.rank, span.row_index, span.row_start, span.length,
        span.start, own.call_id IS NOT NULL AS is_own, named.call_id IS NOT NULL AS is_named, named.rollout_id AS owner,
        home.rollout_id IS NULL AND abroad.rollout_id IS NOT NULL AS is_foreign,
        CASE WHEN own.call_id IS NOT NULL THEN own.output_len ELSE named.output_len END AS output_len,
        CASE WHEN own.call_id IS NOT NULL THEN own.exactness ELSE named.exactness END AS exactness
    FROM trained_span AS span
    LEFT JOIN named ON named.run_id = span.run_id AND named.call_id = span.call_id
    LEFT JOIN known AS own
        ON own.run_id = span.run_id AND own.call_id = span.call_id AND own.rollout_id = span.rollout_id
    LEFT JOIN (SELECT DISTINCT run_id, rollout_id FROM rollouts) AS home
        ON home.run_id = span.run_id AND home.rollout_id = span.rollout_id
    LEFT JOIN (SELECT DISTINCT rollout_id FROM rollouts) AS abroad ON abroad.rollout_id = span.rollout_id
),
judged AS (
    SELECT
        *,
        CASE
            -- What another run sampled is rollout/run's question.
            WHEN NOT is_named AND is_foreign THEN NULL
            WHEN NOT is_named THEN 'call'
            WHEN NOT is_own AND rollout_id IS NOT NULL AND owner IS NOT NULL THEN 'rollout'
            WHEN output_len IS NULL OR exactness IS NOT NULL THEN 'ids'
            WHEN start + length > output_len THEN 'offset'
        END AS fault,
        -- What the output has of the span.
        CASE WHEN start + length > output_len THEN greatest(output_len - start, 0) ELSE 0 END AS good
    FROM traced
)
SELECT
    run_id, step, rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index,
    row_start + CASE WHEN fault = 'offset' THEN good ELSE 0 END AS position,
    'row' AS position_in,
    length - CASE WHEN fault = 'offset' THEN good ELSE 0 END AS length,
    CASE fault
        WHEN 'call' THEN 'a row in calls'
        WHEN 'rollout' THEN concat('a call of ', rollout_id)
        WHEN 'ids' THEN 'ids from the engine'
        ELSE concat('offsets below ', output_len)
    END AS expected,
    CASE fault
        WHEN 'call' THEN 'none'
        WHEN 'rollout' THEN concat('a call of ', owner)
        WHEN 'ids' THEN coalesce(exactness, 'absent')
        ELSE concat('offset ', start + length - 1)
    END AS observed,
    CASE fault
        WHEN 'call' THEN concat('tokens from row token ', row_start, ' on train as outputs of ', call_id, ', which is not in the lake')
        WHEN 'rollout' THEN
            concat('tokens from row token ', row_start, ' on train as outputs of ', call_id, ' of ', rollout_id,
                ', but ', call_id, ' is a call of ', owner)
        WHEN 'ids' THEN
            concat('tokens from row token ', row_start, ' on train as outputs of ', call_id, ', whose ids the engine did not give')
        ELSE
            concat('tokens from row token ', row_start + good, ' on train as outputs of ', call_id, ', which has ',
                output_len, ' tokens')
    END AS message
FROM judged
WHERE fault IS NOT NULL
UNION ALL
SELECT
    run_id, step, rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index, row_start, 'row', length,
    'a segment that names a call and an offset',
    CASE
        WHEN source IS NULL THEN 'no segment'
        WHEN call_id IS NULL THEN concat('a segment of source ', source, ' that names no call')
        ELSE concat('a segment of source ', source, ' that names no offset')
    END,
    concat(length, ' tokens from row token ', row_start, ' on train, and no segment says which output of which call they are')
FROM stray_span
WHERE coalesce(source, '') NOT IN ('prompt', 'boundary', 'pad')
