-- @question Is what happened between the calls of a rollout on record, once, in its place, and within its limits?
-- @layer environment
-- @severity error
-- @version 2
-- @outcome violation
-- @needs environment_records.call_id, environment_records.tool_call_id, environment_records.delivered_call_id,
--   environment_records.token_count, environment_records.duration_ms, environment_records.limit_ms, calls.parsed,
--   rollouts.call_count, rollouts.limit_ms
-- @examined
--   SELECT run_id, count(*) AS examined FROM environment_records GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM rollouts GROUP BY run_id
-- @undeclared
--   SELECT called.run_id, 'environment_records.tool_call_id' AS missing,
--       concat('keep what tools returned; ', called.calls, ' calls with tool calls were continued, and no record answers one') AS remedy
--   FROM (
--       SELECT call.run_id, count(DISTINCT call.call_id) AS calls
--       FROM (SELECT run_id, call_id FROM calls WHERE coalesce(json_length(parsed, 'tool_calls'), 0) > 0) AS call
--       JOIN (SELECT DISTINCT run_id, parent_call_id FROM calls) AS child
--         ON child.run_id = call.run_id AND child.parent_call_id = call.call_id
--       GROUP BY call.run_id
--   ) AS called
--   LEFT JOIN (SELECT DISTINCT run_id FROM environment_records WHERE kind IN ('tool_result', 'error') OR kind IS NULL) AS kept
--     ON kept.run_id = called.run_id
--   WHERE kept.run_id IS NULL
-- @undeclared
--   SELECT run_id, 'environment_records.delivered_call_id' AS missing,
--       concat('say whose prompt first holds each result; of ', count(*), ' tool results none says it') AS remedy
--   FROM environment_records WHERE kind = 'tool_result'
--   GROUP BY run_id HAVING count(delivered_call_id) = 0 AND count(call_id) = 0
WITH single AS (
    SELECT call.run_id, call.call_id, call.rollout_id, call.prompt_len, call.parent_prefix_len, call.parent_call_id
    FROM calls AS call
    LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = call.run_id AND doubled.call_id = call.call_id
    WHERE call.call_id IS NOT NULL
),
result AS (
    SELECT
        run_id, step, group_id, rollout_id, record_id, call_id, call_index, coalesce(kind, 'tool_result') AS kind, tool_call_id,
        delivered_call_id, token_count, coalesce(is_error, false) OR coalesce(error_type, '') <> '' OR kind = 'error' AS has_error,
        duration_ms, limit_ms
    FROM environment_records
),
kept AS (
    SELECT run_id, count(delivered_call_id) AS delivered
    FROM result WHERE kind IN ('tool_result', 'error') GROUP BY run_id
),
-- Asked only of calls that should have a result, and of those whose result was not delivered.
continued AS (
    SELECT child.run_id, child.parent_call_id AS call_id, min(child.call_id) AS child
    FROM (
        SELECT run_id, call_id FROM call_tools
        UNION ALL
        SELECT run_id, call_id FROM result WHERE kind = 'tool_result' AND delivered_call_id IS NULL
    ) AS call
    JOIN calls AS child ON child.run_id = call.run_id AND child.parent_call_id = call.call_id
    WHERE child.break_reason IS NULL
    GROUP BY child.run_id, child.parent_call_id
),
-- The call that a result answers: the one it names, else the one of its index, else the parent of the one whose prompt holds it.
answer AS (
    SELECT
        result.run_id, result.rollout_id, coalesce(result.call_id, placed.call_id, delivered.parent_call_id) AS call_id
    FROM result
    LEFT JOIN (
        SELECT run_id, rollout_id, call_index, min(call_id) AS call_id FROM calls
        WHERE coalesce(kind, 'act') = 'act' AND call_index IS NOT NULL GROUP BY run_id, rollout_id, call_index HAVING count(*) = 1
    ) AS placed
        ON placed.run_id = result.run_id AND placed.rollout_id = result.rollout_id AND placed.call_index = result.call_index
    LEFT JOIN single AS delivered ON delivered.run_id = result.run_id AND delivered.call_id = result.delivered_call_id
    WHERE result.kind IN ('tool_result', 'error')
),
answered AS (
    SELECT run_id, call_id, count(*) AS results FROM answer WHERE call_id IS NOT NULL GROUP BY run_id, call_id
),
-- Rollouts with a result of which nothing says what it answers: it may be anyone's.
unplaced AS (
    SELECT DISTINCT run_id, rollout_id FROM answer WHERE call_id IS NULL
),
origin AS (
    SELECT run_id, rollout_id, min(origin_rollout_id) AS origin_rollout_id FROM rollouts GROUP BY run_id, rollout_id
),
counted AS (
    SELECT
        run_id, rollout_id, count(*) AS calls, count(*) FILTER (WHERE coalesce(kind, 'act') IN ('act', 'compact')) AS act
    FROM calls
    WHERE rollout_id IS NOT NULL
    GROUP BY run_id, rollout_id
),
miscounted AS (
    SELECT
        rollout.run_id, rollout.step, rollout.group_id, rollout.rollout_id, rollout.call_count, coalesce(counted.calls, 0) AS calls
    FROM rollouts AS rollout
    LEFT JOIN counted ON counted.run_id = rollout.run_id AND counted.rollout_id = rollout.rollout_id
    WHERE coalesce(rollout.status, '') <> 'running'
        AND (rollout.call_count > coalesce(counted.calls, 0) OR rollout.call_count < coalesce(counted.act, 0))
),
requested AS (
    SELECT call.run_id, call.rollout_id, count(DISTINCT coalesce(call.request_id, call.call_id)) AS act_requests
    FROM (SELECT DISTINCT run_id, rollout_id FROM miscounted) AS rollout
    JOIN calls AS call ON call.run_id = rollout.run_id AND call.rollout_id = rollout.rollout_id
    WHERE coalesce(call.kind, 'act') IN ('act', 'compact')
    GROUP BY call.run_id, call.rollout_id
),
delivery AS (
    SELECT
        result.run_id, result.rollout_id, result.delivered_call_id, sum(CAST(result.token_count AS BIGINT)) AS tokens,
        count(*) AS records
    FROM result WHERE result.delivered_call_id IS NOT NULL AND result.token_count IS NOT NULL
    GROUP BY result.run_id, result.rollout_id, result.delivered_call_id
),
-- Rollouts in which no tool ran.
unhelped AS (
    SELECT DISTINCT rollout.run_id, rollout.rollout_id
    FROM rollouts AS rollout
    LEFT ANTI JOIN result ON result.run_id = rollout.run_id AND result.rollout_id = rollout.rollout_id
    WHERE coalesce(rollout.status, 'completed') = 'completed'
),
last_call AS (
    SELECT *
    FROM (
        SELECT
            call.run_id, call.rollout_id, call.call_id,
            row_number() OVER (PARTITION BY call.run_id, call.rollout_id ORDER BY call.call_index DESC, call.call_id DESC) AS place,
            count(*) OVER (PARTITION BY call.run_id, call.rollout_id) AS calls
        FROM unhelped
        JOIN calls AS call ON call.run_id = unhelped.run_id AND call.rollout_id = unhelped.rollout_id
        WHERE coalesce(call.kind, 'act') = 'act'
    )
    WHERE place = 1
),
failed_call AS (
    SELECT call.run_id, call.rollout_id, call.call_id
    FROM (SELECT DISTINCT run_id, rollout_id FROM rollouts WHERE status IN ('failed', 'aborted')) AS failed
    JOIN single AS call ON call.run_id = failed.run_id AND call.rollout_id = failed.rollout_id
)
SELECT
    call.run_id, call.step, call.group_id, call.rollout_id, call.call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    concat(call.tool_calls, ' results') AS expected,
    concat(coalesce(answered.results, 0), ' results') AS observed,
    concat('call ', call.call_id, ' made ', call.tool_calls, ' tool calls and was continued by ', continued.child, ', and ',
        coalesce(answered.results, 0), ' results are on record') AS message
FROM call_tools AS call
JOIN kept ON kept.run_id = call.run_id
JOIN continued ON continued.run_id = call.run_id AND continued.call_id = call.call_id
LEFT JOIN answered ON answered.run_id = call.run_id AND answered.call_id = call.call_id
LEFT ANTI JOIN unplaced ON unplaced.run_id = call.run_id AND unplaced.rollout_id = call.rollout_id
WHERE call.tool_calls > coalesce(answered.results, 0)
UNION ALL
-- What the parser did not see as a call: the markup stands in the text, and nothing ran.
SELECT
    call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, NULL, 'a tool result', 'none',
    concat('call ', call.call_id, ' writes a tool call, of which its parser made none, and ', continued.child,
        ' continues it with no result on record')
FROM call_tools AS call
JOIN kept ON kept.run_id = call.run_id
JOIN continued ON continued.run_id = call.run_id AND continued.call_id = call.call_id
LEFT ANTI JOIN answered ON answered.run_id = call.run_id AND answered.call_id = call.call_id
LEFT ANTI JOIN unplaced ON unplaced.run_id = call.run_id AND unplaced.rollout_id = call.rollout_id
WHERE call.is_marked AND call.tool_calls = 0
UNION ALL
SELECT
    call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, NULL, 'a tool result', 'none',
    concat('call ', call.call_id, ' ends with a tool call, the rollout counts as completed, and no tool ran in it')
FROM call_tools AS call
JOIN last_call
    ON last_call.run_id = call.run_id AND last_call.rollout_id = call.rollout_id AND last_call.call_id = call.call_id
LEFT JOIN kept ON kept.run_id = call.run_id
-- Where a run keeps no results at all, a rollout that went on had some all the same.
WHERE last_call.calls = 1 OR kept.run_id IS NOT NULL
UNION ALL
SELECT
    run_id, min(step), min(group_id), min(rollout_id), min(call_id), NULL, 'one result', concat(count(*), ' results'),
    concat('tool call ', tool_call_id, ' of ', coalesce(min(call_id), 'an unnamed call'), ' has ', count(*), ' results: records ',
        min(record_id), ' to ', max(record_id))
FROM result
-- A tool that failed may be run again under the same id; one that gave a result was not.
WHERE kind = 'tool_result' AND tool_call_id IS NOT NULL AND NOT has_error
GROUP BY run_id, rollout_id, call_id, tool_call_id
HAVING count(*) > 1
UNION ALL
SELECT
    result.run_id, result.step, result.group_id, result.rollout_id, result.call_id, NULL, 'a delivery', 'none',
    concat('record ', result.record_id, ' answers call ', result.call_id, ', which ', continued.child,
        ' continues, and was delivered to no call')
FROM result
JOIN kept ON kept.run_id = result.run_id AND kept.delivered > 0
JOIN continued ON continued.run_id = result.run_id AND continued.call_id = result.call_id
-- Of several attempts at one tool call one is delivered.
LEFT ANTI JOIN (
    SELECT run_id, rollout_id, call_id, tool_call_id FROM result WHERE delivered_call_id IS NOT NULL AND tool_call_id IS NOT NULL
) AS repeated
    ON repeated.run_id = result.run_id AND repeated.rollout_id IS NOT DISTINCT FROM result.rollout_id
    AND repeated.call_id = result.call_id AND repeated.tool_call_id = result.tool_call_id
WHERE result.kind = 'tool_result' AND result.delivered_call_id IS NULL
UNION ALL
SELECT
    result.run_id, result.step, result.group_id, result.rollout_id, result.delivered_call_id, NULL,
    concat('a call after ', coalesce(result.call_id, concat('call ', result.call_index))),
    concat('call ', result.delivered_call_id),
    concat('record ', result.record_id, ', which call ', result.call_index, ' caused, is said to be delivered to call ',
        result.delivered_index, ', whose prompt was built before')
FROM misplaced_record AS result
WHERE result.delivered_rollout = result.rollout_id AND coalesce(result.cause_rollout, result.rollout_id) = result.rollout_id
    AND result.delivered_index <= coalesce(result.cause_index, result.call_index)
UNION ALL
SELECT
    result.run_id, result.step, result.group_id, result.rollout_id, result.delivered_call_id, NULL,
    concat('a call of ', result.rollout_id), concat('one of ', result.delivered_rollout),
    concat('record ', result.record_id, ' of rollout ', result.rollout_id, ' is said to be delivered to call ',
        result.delivered_call_id, ' of rollout ', result.delivered_rollout)
FROM misplaced_record AS result
LEFT JOIN origin AS here ON here.run_id = result.run_id AND here.rollout_id = result.rollout_id
LEFT JOIN origin AS there ON there.run_id = result.run_id AND there.rollout_id = result.delivered_rollout
-- What one rollout makes of another (a fork, a subagent) may pass between them.
WHERE result.delivered_rollout <> result.rollout_id
    AND coalesce(here.origin_rollout_id, here.rollout_id, result.rollout_id)
        <> coalesce(there.origin_rollout_id, there.rollout_id, result.delivered_rollout)
UNION ALL
SELECT
    delivery.run_id, NULL, NULL, delivery.rollout_id, delivery.delivered_call_id, NULL,
    concat('at most ', single.prompt_len - CASE WHEN single.parent_call_id IS NULL THEN 0 ELSE coalesce(single.parent_prefix_len, 0) END,
        ' tokens'),
    concat(delivery.tokens, ' tokens'),
    concat(delivery.records, ' records of ', delivery.tokens, ' tokens are said to be delivered to call ', delivery.delivered_call_id,
        ', whose prompt has ',
        single.prompt_len - CASE WHEN single.parent_call_id IS NULL THEN 0 ELSE coalesce(single.parent_prefix_len, 0) END,
        ' that its parent''s context has not')
FROM delivery
JOIN single ON single.run_id = delivery.run_id AND single.call_id = delivery.delivered_call_id
WHERE delivery.tokens
    > single.prompt_len - CASE WHEN single.parent_call_id IS NULL THEN 0 ELSE coalesce(single.parent_prefix_len, 0) END
UNION ALL
SELECT
    result.run_id, result.step, result.group_id, result.rollout_id, result.call_id, NULL,
    concat('rollout ', result.cause_rollout), concat('rollout ', result.rollout_id),
    concat('record ', result.record_id, ' of rollout ', result.rollout_id, ' says that call ', result.call_id, ' caused it, which rollout ',
        result.cause_rollout, ' made')
FROM misplaced_record AS result
LEFT JOIN origin AS here ON here.run_id = result.run_id AND here.rollout_id = result.rollout_id
WHERE result.cause_rollout <> result.rollout_id AND here.origin_rollout_id IS NULL
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, CAST(cause_index AS VARCHAR), CAST(call_index AS VARCHAR),
    concat('record ', record_id, ' calls ', call_id, ' call ', call_index, ' of its rollout, and it is call ', cause_index)
FROM misplaced_record
WHERE cause_rollout = rollout_id AND cause_index <> call_index
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, concat('less than ', limit_ms, ' ms, or an error'), concat(duration_ms, ' ms'),
    concat('record ', record_id, ' took ', duration_ms, ' ms where its limit is ', limit_ms, ', and reports no error')
FROM result
WHERE limit_ms > 0 AND duration_ms >= limit_ms AND NOT has_error
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, NULL, NULL, concat('less than ', limit_ms, ' ms, or an end that says so'),
    concat(duration_ms, ' ms'),
    concat('rollout ', rollout_id, ' took ', duration_ms, ' ms where its limit is ', limit_ms, ', and ended as ',
        coalesce(termination_reason, status, 'nothing that is on record'))
FROM (
    SELECT *, CAST(to_unixtime(finished_at) * 1000 AS DOUBLE) - CAST(to_unixtime(started_at) * 1000 AS DOUBLE) AS duration_ms
    FROM rollouts
)
WHERE limit_ms > 0 AND duration_ms >= limit_ms
    AND coalesce(status, 'completed') = 'completed'
    AND NOT coalesce(regexp_like(lower(termination_reason), 'time|limit|trunc|abort|deadline|budget'), false)
UNION ALL
SELECT
    rollout.run_id, rollout.step, rollout.group_id, rollout.rollout_id, NULL, NULL, concat(rollout.call_count, ' calls'),
    concat(rollout.calls, ' calls'),
    concat('rollout ', rollout.rollout_id, ' says that it made ', rollout.call_count, ' calls, and ', rollout.calls, ' are on record')
FROM miscounted AS rollout
LEFT JOIN requested ON requested.run_id = rollout.run_id AND requested.rollout_id = rollout.rollout_id
-- A source counts calls or requests, with those of a judge or without.
WHERE rollout.call_count > rollout.calls OR rollout.call_count < coalesce(requested.act_requests, 0)
UNION ALL
SELECT
    run_id, min(step), min(group_id), rollout_id, first_value(call_id ORDER BY call_index, call_id), NULL,
    'outputs that end as the policy ends them', concat(count(*), ' equal outputs of one token'),
    concat(count(*), ' calls of rollout ', rollout_id, ' gave the same single token, and none says why it ended: its context may have been full')
FROM calls
WHERE output_len = 1 AND output_digest IS NOT NULL AND finish_reason IS NULL
GROUP BY run_id, rollout_id, output_digest
HAVING count(*) >= 5
UNION ALL
SELECT
    trained.run_id, failed.step, failed.group_id, trained.rollout_id, trained.call_id, trained.build_id, 'the attempt that replaced it',
    concat('attempt ', coalesce(CAST(failed.attempt AS VARCHAR), '?'), ', ', failed.status),
    concat('build ', trained.build_id, ' trains call ', trained.call_id, ' of rollout ', trained.rollout_id, ', whose attempt ',
        failed.status,
        CASE
            WHEN retry.rollout_id IS NOT NULL THEN concat(' and was repeated as ', retry.rollout_id)
            WHEN later.rollout_id IS NOT NULL THEN concat(' and was repeated as attempt ', later.attempt, ', ', later.rollout_id)
            ELSE ', and no verifier stands by a value of it'
        END)
FROM (
    SELECT DISTINCT span.run_id, span.build_id, call.rollout_id, span.call_id
    FROM failed_call AS call
    JOIN trained_span AS span ON span.run_id = call.run_id AND span.call_id = call.call_id
) AS trained
JOIN rollouts AS failed
    ON failed.run_id = trained.run_id AND failed.rollout_id = trained.rollout_id AND failed.status IN ('failed', 'aborted')
LEFT JOIN (
    SELECT run_id, origin_rollout_id, min(rollout_id) AS rollout_id
    FROM rollouts WHERE relation = 'retry' AND origin_rollout_id IS NOT NULL GROUP BY run_id, origin_rollout_id
) AS retry ON retry.run_id = failed.run_id AND retry.origin_rollout_id = failed.rollout_id
-- Without a word on what repeats what: a later attempt at the same place of the same group.
LEFT JOIN (
    SELECT
        one.run_id, one.rollout_id AS failed_id, min(other.rollout_id) AS rollout_id, min(other.attempt) AS attempt
    FROM rollouts AS one
    JOIN rollouts AS other
        ON other.run_id = one.run_id AND other.group_id = one.group_id AND other.task_id IS NOT DISTINCT FROM one.task_id
        AND other.attempt > one.attempt
    WHERE one.status IN ('failed', 'aborted') AND other.relation IS NULL
    GROUP BY one.run_id, one.rollout_id
) AS later ON later.run_id = failed.run_id AND later.failed_id = failed.rollout_id
LEFT JOIN (
    SELECT run_id, rollout_id, count(*) AS judged FROM scores
    WHERE coalesce(is_valid, true) AND coalesce(error_type, '') = '' AND value IS NOT NULL GROUP BY run_id, rollout_id
) AS score ON score.run_id = failed.run_id AND score.rollout_id = failed.rollout_id
LEFT JOIN (SELECT DISTINCT run_id FROM scores) AS scored ON scored.run_id = failed.run_id
-- A failed rollout that was judged may train: its status alone excludes nothing.
WHERE retry.rollout_id IS NOT NULL OR later.rollout_id IS NOT NULL
    OR (scored.run_id IS NOT NULL AND score.rollout_id IS NULL)
