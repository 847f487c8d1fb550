-- @question Does a build have as many rows and sequences as its rollouts need, each once?
-- @layer sample
-- @severity warning
-- @version 2
-- @outcome violation
-- @scope build
-- @needs samples.segments, calls.agent_id, calls.parent_call_id, calls.break_reason, samples.row_index
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT span.run_id, span.build_id, 'calls.agent_id' AS missing,
--       concat('say which agent made each call, so that the chains of a rollout can be told; ', count(*), ' rollouts of several sequences do not') AS remedy
--   FROM (
--     SELECT run_id, build_id, rollout_id, min(call_id) AS call_id
--     FROM trained_span WHERE rollout_id IS NOT NULL AND call_id IS NOT NULL
--     GROUP BY run_id, build_id, rollout_id HAVING count(DISTINCT concat(row_index, '/', sequence_index)) > 1
--   ) AS span
--   JOIN (SELECT run_id, call_id FROM calls WHERE agent_id IS NULL AND parent_call_id IS NOT NULL) AS call
--     ON call.run_id = span.run_id AND call.call_id = span.call_id
--   LEFT JOIN (SELECT DISTINCT run_id, build_id FROM row_build WHERE origin = 'rollbook') AS own
--     ON own.run_id = span.run_id AND own.build_id = span.build_id
--   WHERE own.build_id IS NULL
--   GROUP BY span.run_id, span.build_id
WITH sequence AS (
    SELECT DISTINCT
        run_id, build_id, coalesce(epoch, 0) AS epoch, step, optimizer_step, micro_batch, rank, row_index, sequence_index, rollout_id
    FROM trained_span
    WHERE rollout_id IS NOT NULL
),
-- Only a rollout of several sequences can have too many.
counted AS (
    SELECT run_id, build_id, epoch, rollout_id, count(*) AS sequences
    FROM sequence
    GROUP BY run_id, build_id, epoch, rollout_id
    HAVING count(*) > 1
),
several AS (
    SELECT
        counted.run_id, counted.build_id, counted.rollout_id, max(counted.sequences) AS sequences,
        first_value(named_struct('step', step, 'epoch', sequence.epoch, 'micro_batch', micro_batch, 'rank', rank, 'row_index', row_index)
            ORDER BY sequence.epoch, step, optimizer_step, rank, micro_batch, row_index) AS place
    FROM counted
    JOIN sequence
        ON sequence.run_id = counted.run_id AND sequence.build_id IS NOT DISTINCT FROM counted.build_id
        AND sequence.epoch = counted.epoch AND sequence.rollout_id = counted.rollout_id
    GROUP BY counted.run_id, counted.build_id, counted.rollout_id
),
used AS (
    SELECT DISTINCT row.run_id, row.build_id, row.rollout_id, row.call_id
    FROM row_segment AS row
    JOIN several
        ON several.run_id = row.run_id AND several.build_id IS NOT DISTINCT FROM row.build_id AND several.rollout_id = row.rollout_id
    WHERE row.source = 'output' AND row.call_id IS NOT NULL
),
member AS (
    SELECT
        used.build_id, call.run_id, call.rollout_id, call.call_id, call.parent_call_id, call.agent_id, call.break_reason, call.call_index,
        call.prompt_len, call.output_len, call.parent_prefix_len,
        lag(call.prompt_len + call.output_len) OVER (
            PARTITION BY used.build_id, call.run_id, call.rollout_id, call.agent_id ORDER BY call.call_index, call.call_id
        ) AS agent_context,
        row_number() OVER (
            PARTITION BY used.build_id, call.run_id, call.rollout_id, call.parent_call_id ORDER BY call.call_index, call.call_id
        ) AS child
    FROM used
    JOIN calls AS call ON call.run_id = used.run_id AND call.rollout_id = used.rollout_id AND call.call_id = used.call_id
),
-- Calls that start a sequence whatever the builder does: the first of an agent, a branch, a declared break, one whose parent is
-- in no row. Our own builds also start one where a prompt does not hold its parent's context, which token/prefix tells.
lineage AS (
    SELECT
        member.build_id, member.run_id, member.rollout_id,
        -- Only who names agents says which calls are one line; without, a row of each call is as good.
        bool_and(member.agent_id IS NOT NULL) AS has_agents,
        count(*) FILTER (
            WHERE CASE
                WHEN member.break_reason IS NOT NULL THEN true
                WHEN member.parent_call_id IS NULL AND member.agent_id IS NOT NULL
                    THEN coalesce(member.prompt_len < member.agent_context, true)
                WHEN member.parent_call_id IS NULL OR parent.call_id IS NULL OR member.child > 1 THEN true
                WHEN member.agent_id <> parent.agent_id THEN true
                ELSE coalesce(build.origin, 'imported') = 'rollbook'
                    AND coalesce(member.parent_prefix_len < parent.prompt_len + parent.output_len, true)
            END
        ) AS lineages
    FROM member
    LEFT JOIN member AS parent
        ON parent.run_id = member.run_id AND parent.build_id IS NOT DISTINCT FROM member.build_id
        AND parent.rollout_id = member.rollout_id AND parent.call_id = member.parent_call_id
    LEFT JOIN (SELECT run_id, build_id, max(origin) AS origin FROM row_build GROUP BY run_id, build_id) AS build
        ON build.run_id = member.run_id AND build.build_id = member.build_id
    GROUP BY member.build_id, member.run_id, member.rollout_id
),
-- Rows that name no calls, and hold the same tokens of the same rollout once more.
copied AS (
    SELECT
        run_id, build_id, rollout_id, count(*) AS copies,
        first_value(named_struct('step', step, 'epoch', epoch, 'micro_batch', micro_batch, 'rank', rank, 'row_index', row_index)
            ORDER BY step DESC, rank DESC, micro_batch DESC, row_index DESC) AS place
    FROM (
        SELECT
            run_id, build_id, coalesce(epoch, 0) AS epoch, step, micro_batch, rank, row_index, rollout_id, token_digest(token_ids) AS tokens,
            logprob_digest(logprobs) AS logprobs
        FROM samples
        WHERE segments IS NULL AND token_ids IS NOT NULL AND NOT coalesce(is_pad, false)
            AND (rollout_id IS NOT NULL OR logprobs IS NOT NULL)
    )
    GROUP BY run_id, build_id, epoch, rollout_id, tokens, logprobs
    HAVING count(*) > 1
),
doubled AS (
    SELECT run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index, count(*) AS copies
    FROM samples
    WHERE build_id IS NOT NULL AND step IS NOT NULL AND micro_batch IS NOT NULL AND rank IS NOT NULL AND row_index IS NOT NULL
    GROUP BY run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index
    HAVING count(*) > 1
)
SELECT
    several.run_id, several.place['step'] AS step, several.rollout_id, several.build_id, several.place['epoch'] AS epoch,
    several.place['micro_batch'] AS micro_batch, several.place['rank'] AS rank, several.place['row_index'] AS row_index,
    CAST(lineage.lineages AS VARCHAR) AS expected, CAST(several.sequences AS VARCHAR) AS observed,
    concat('rollout ', several.rollout_id, ' became ', several.sequences, ' sequences where its calls are ', lineage.lineages,
        ' chain', CASE WHEN lineage.lineages = 1 THEN '' ELSE 's' END) AS message
FROM several
JOIN lineage
    ON lineage.run_id = several.run_id AND lineage.build_id IS NOT DISTINCT FROM several.build_id
    AND lineage.rollout_id = several.rollout_id
WHERE several.sequences > lineage.lineages AND lineage.has_agents
UNION ALL
SELECT
    run_id, place['step'], rollout_id, build_id, place['epoch'], place['micro_batch'], place['rank'], place['row_index'],
    '1', CAST(copies AS VARCHAR),
    concat(copies, ' rows that name no calls hold the same tokens and logprobs; the last of them is row ',
        coalesce(CAST(place['row_index'] AS VARCHAR), '?'))
FROM copied
UNION ALL
SELECT
    run_id, step, NULL, build_id, epoch, micro_batch, rank, row_index, '1', CAST(copies AS VARCHAR),
    concat(copies, ' rows have the place row ', row_index, ', micro-batch ', micro_batch, ', rank ', rank, ' of step ', step)
FROM doubled
