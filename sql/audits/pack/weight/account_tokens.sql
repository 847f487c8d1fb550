-- Of a build: how many tokens were sampled, and what became of each. $build and $run stand for its ids.
WITH span AS (
    SELECT coalesce(epoch, 0) AS epoch, rollout_id, call_id, start, length
    FROM trained_span
    WHERE run_id = $run AND build_id = $build
),
excused AS (
    SELECT rollout_id, call_id, position AS start, length, coalesce(reason, 'no reason') AS reason
    FROM exclusions
    WHERE run_id = $run AND build_id = $build
),
credited AS (
    SELECT DISTINCT credit.rollout_id
    FROM (
        SELECT build.build_id, unnest(derivation.upstream_derivation_ids) AS derivation_id
        FROM builds AS build
        JOIN derivations AS derivation ON derivation.derivation_id = build.derivation_id
        WHERE build.build_id = $build
    ) AS upstream
    JOIN credits_history AS credit ON credit.derivation_id = upstream.derivation_id
    WHERE credit.run_id = $run
),
named AS (
    SELECT DISTINCT rollout_id
    FROM (
        SELECT rollout_id FROM row_segment WHERE run_id = $run AND build_id = $build
        UNION ALL SELECT rollout_id FROM samples WHERE run_id = $run AND build_id = $build
        UNION ALL SELECT rollout_id FROM excused
        UNION ALL SELECT rollout_id FROM credited
        -- Of rows that name calls alone.
        UNION ALL
        SELECT calls.rollout_id
        FROM calls
        JOIN (SELECT DISTINCT call_id FROM span WHERE rollout_id IS NULL) AS bare ON bare.call_id = calls.call_id
        WHERE calls.run_id = $run
    )
    WHERE rollout_id IS NOT NULL
),
call AS (
    SELECT
        calls.rollout_id, calls.call_id, calls.output_len, calls.sampled_mask,
        coalesce(calls.is_trainable, coalesce(calls.kind, 'act') NOT IN ('judge', 'other')) AS is_trainable
    FROM calls
    JOIN named ON named.rollout_id = calls.rollout_id
    WHERE calls.run_id = $run AND calls.output_len > 0
),
trained AS (
    SELECT call_id, array_agg(named_struct('start', start, 'length', length)) AS spans FROM span GROUP BY call_id
),
-- A reason without a call is of the whole rollout.
reasons AS (
    SELECT call_id, in_order(array_agg(named_struct('reason', reason, 'start', start, 'length', length))) AS spans
    FROM (
        SELECT call_id, start, length, reason FROM excused WHERE call_id IS NOT NULL
        UNION ALL
        SELECT call.call_id, CAST(NULL AS INTEGER), CAST(NULL AS INTEGER), excused.reason
        FROM excused
        JOIN call ON call.rollout_id = excused.rollout_id
        WHERE excused.call_id IS NULL
    )
    GROUP BY call_id
),
fate AS (
    SELECT is_trainable, unnest(token_fates(output_len, sampled_mask, spans, excused)) AS fate
    FROM (
        SELECT call.is_trainable, call.output_len, call.sampled_mask, trained.spans, reasons.spans AS excused
        FROM call
        LEFT JOIN trained ON trained.call_id = call.call_id
        LEFT JOIN reasons ON reasons.call_id = call.call_id
    )
),
counted AS (
    SELECT
        CASE WHEN fate['fate'] = 'unaccounted' AND NOT is_trainable THEN 'excluded' ELSE fate['fate'] END AS fate,
        CASE WHEN fate['fate'] = 'unaccounted' AND NOT is_trainable THEN 'not_trainable' ELSE fate['reason'] END AS reason,
        fate['tokens'] AS tokens
    FROM fate
),
-- Trained again in the same epoch.
again AS (
    SELECT slots - coalesce(once['tokens'], 0) AS tokens
    FROM (
        SELECT slots, unnest(token_fates(output_len, NULL, spans, NULL)) AS once
        FROM (
            SELECT
                span.epoch, span.call_id, max(call.output_len) AS output_len, sum(span.length) AS slots,
                array_agg(named_struct('start', span.start, 'length', span.length)) AS spans
            FROM span
            JOIN call ON call.call_id = span.call_id
            GROUP BY span.epoch, span.call_id
        )
    )
    WHERE once['fate'] = 'trained'
),
line AS (
    SELECT 0 AS place, 'sampled' AS name, coalesce(sum(tokens), 0) AS tokens FROM counted
    UNION ALL
    SELECT 1, 'trained', coalesce(sum(tokens), 0) FROM counted WHERE fate = 'trained'
    UNION ALL
    SELECT 2, concat('excluded: ', reason), sum(tokens) FROM counted WHERE fate = 'excluded' GROUP BY reason
    UNION ALL
    SELECT 3, 'unaccounted', coalesce(sum(tokens), 0) FROM counted WHERE fate = 'unaccounted'
    UNION ALL
    SELECT 4, 'duplicated', coalesce(sum(tokens), 0) FROM again
    UNION ALL
    -- Trained, and of no output that the lake holds: the rows name no call, or one that is not there, or more than it gave.
    SELECT 5, 'untraced', greatest(given.tokens - coalesce(traced.tokens, 0), 0)
    FROM (SELECT coalesce(sum(tokens), 0) AS tokens FROM row_weights WHERE run_id = $run AND build_id = $build) AS given
    CROSS JOIN (
        SELECT sum(greatest(least(span.start + span.length, output.length) - span.start, 0)) AS tokens
        FROM span
        JOIN (SELECT call_id, max(output_len) AS length FROM call GROUP BY call_id) AS output ON output.call_id = span.call_id
    ) AS traced
)
SELECT
    'tokens' AS part, name, CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS BIGINT) AS optimizer_step, CAST(NULL AS VARCHAR) AS rollout_id,
    CAST(NULL AS BIGINT) AS rows, CAST(tokens AS BIGINT) AS tokens, CAST(NULL AS DOUBLE) AS weight, CAST(NULL AS DOUBLE) AS expected,
    CASE WHEN place < 5 THEN CAST(tokens AS DOUBLE) / nullif(max(CASE WHEN place = 0 THEN tokens END) OVER (), 0) END AS observed
FROM line
ORDER BY place, name
