-- @question Was every rollout and every choice that was sampled used, or left out for a reason that does not bend the rest?
-- @layer sample
-- @severity warning
-- @version 2
-- @outcome violation
-- @needs calls.request_id, calls.choice_index, calls.is_selected, rollouts.drop_reason, rollouts.stream_ordinal,
--   exclusions.rollout_id
-- @examined
--   SELECT run_id, count(*) AS examined FROM rollouts WHERE coalesce(purpose, 'train') = 'train' GROUP BY run_id
--   UNION ALL
--   SELECT run_id, count(*) FROM calls WHERE choice_index > 0 GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.is_selected' AS missing,
--       concat('say with which choice the harness went on; ', count(*), ' requests with several choices do not') AS remedy
--   FROM (
--       SELECT run_id, request_id FROM calls WHERE request_id IS NOT NULL
--       GROUP BY run_id, request_id HAVING count(*) > 1 AND count(is_selected) = 0 AND count(DISTINCT choice_index) > 1
--   )
--   GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.request_id' AS missing,
--       concat('say which choices come from one request; ', count(*), ' calls with a choice_index do not') AS remedy
--   FROM calls WHERE choice_index > 0 AND request_id IS NULL GROUP BY run_id
-- @undeclared
--   SELECT rollout.run_id, 'samples.segments' AS missing,
--       concat('say from which rollout each row comes; whether all ', count(*), ' training rollouts are used is not known') AS remedy
--   FROM (SELECT DISTINCT run_id, rollout_id FROM rollouts WHERE coalesce(purpose, 'train') = 'train') AS rollout
--   JOIN (
--       SELECT run_id
--       FROM (SELECT run_id, segments IS NOT NULL OR rollout_id IS NOT NULL AS is_said FROM samples WHERE NOT coalesce(is_pad, false))
--       GROUP BY run_id HAVING NOT bool_or(is_said)
--   ) AS row ON row.run_id = rollout.run_id
--   GROUP BY rollout.run_id
-- @undeclared
--   SELECT rollout.run_id, 'rollouts.stream_ordinal' AS missing,
--       concat('number what the data stream gives out, and store what is dropped: whether places of it were skipped or repeated is not known for ',
--           count(*), ' training rollouts') AS remedy
--   FROM (
--       SELECT run_id, rollout_id, max(stream_ordinal) AS stream_ordinal FROM rollouts
--       WHERE coalesce(purpose, 'train') = 'train' GROUP BY run_id, rollout_id
--   ) AS rollout
--   JOIN (SELECT DISTINCT run_id FROM samples) AS trained ON trained.run_id = rollout.run_id
--   GROUP BY rollout.run_id HAVING count(rollout.stream_ordinal) = 0
WITH choice AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, call_index, request_id, coalesce(choice_index, 0) AS choice_index, is_selected,
        json_get_int(sampling, 'n') AS asked
    FROM calls
    WHERE request_id IS NOT NULL
),
-- Requests of several choices, by what is stored or what is asked.
several AS (
    SELECT run_id, request_id
    FROM choice
    GROUP BY run_id, request_id
    HAVING count(*) > 1 OR max(choice_index) > 0 OR max(asked) > 1
),
-- Choices of one request in one rollout: the harness goes on with one. In several rollouts each is a rollout's own.
request AS (
    SELECT
        choice.run_id, min(step) AS step, min(group_id) AS group_id, min(rollout_id) AS rollout_id, choice.request_id,
        min(call_id) AS call_id, count(*) AS choices, count(DISTINCT choice_index) AS places, max(choice_index) AS last_choice,
        max(asked) AS asked, count(*) FILTER (WHERE is_selected) AS selected, count(DISTINCT rollout_id) AS rollouts
    FROM several
    JOIN choice ON choice.run_id = several.run_id AND choice.request_id = several.request_id
    GROUP BY choice.run_id, choice.request_id
),
passed_over AS (
    SELECT choice.run_id, choice.step, choice.group_id, choice.rollout_id, choice.call_id, min(child.call_id) AS child
    FROM choice
    JOIN calls AS child ON child.run_id = choice.run_id AND child.parent_call_id = choice.call_id
    WHERE NOT choice.is_selected
    GROUP BY choice.run_id, choice.step, choice.group_id, choice.rollout_id, choice.call_id
),
used AS (
    SELECT run_id, rollout_id FROM row_segment WHERE rollout_id IS NOT NULL
    UNION SELECT run_id, rollout_id FROM samples WHERE rollout_id IS NOT NULL
),
excused AS (
    SELECT run_id, rollout_id FROM exclusions WHERE rollout_id IS NOT NULL
    UNION SELECT run_id, rollout_id FROM rewards WHERE value IS NULL AND exclusion_reason IS NOT NULL
    UNION SELECT run_id, rollout_id FROM credits WHERE value IS NULL AND token_values IS NULL
    UNION SELECT run_id, rollout_id FROM quarantine WHERE lifted_at IS NULL AND rollout_id IS NOT NULL
),
length AS (
    SELECT run_id, rollout_id, sum(CAST(output_len AS BIGINT)) AS tokens, count(*) AS calls
    FROM calls WHERE output_len IS NOT NULL AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
    GROUP BY run_id, rollout_id
),
member AS (
    SELECT
        rollout.run_id, rollout.step, rollout.group_id, rollout.rollout_id, rollout.task_id, rollout.stream_ordinal,
        coalesce(rollout.status, '') AS status, rollout.termination_reason, rollout.drop_reason,
        used.rollout_id IS NOT NULL AS is_used,
        excused.rollout_id IS NOT NULL AS is_excused,
        coalesce(length.tokens, rollout.output_token_count) AS tokens
    FROM rollouts AS rollout
    LEFT JOIN used ON used.run_id = rollout.run_id AND used.rollout_id = rollout.rollout_id
    LEFT JOIN excused ON excused.run_id = rollout.run_id AND excused.rollout_id = rollout.rollout_id
    LEFT JOIN length ON length.run_id = rollout.run_id AND length.rollout_id = rollout.rollout_id
    WHERE coalesce(rollout.purpose, 'train') = 'train' AND coalesce(rollout.relation, '') <> 'subagent'
),
reached AS (
    SELECT run_id, max(stream_ordinal) AS ordinal, max(step) AS step FROM member WHERE is_used GROUP BY run_id
),
trained_step AS (
    SELECT run_id, step FROM member WHERE is_used GROUP BY run_id, step
),
replaced AS (
    SELECT DISTINCT run_id, origin_rollout_id AS rollout_id
    FROM rollouts WHERE relation IN ('retry', 'continuation') AND origin_rollout_id IS NOT NULL
),
lost AS (
    SELECT member.*
    FROM member
    JOIN reached ON reached.run_id = member.run_id
    LEFT JOIN trained_step
        ON trained_step.run_id = member.run_id AND trained_step.step IS NOT DISTINCT FROM member.step
    LEFT ANTI JOIN replaced ON replaced.run_id = member.run_id AND replaced.rollout_id = member.rollout_id
    WHERE NOT member.is_used AND NOT member.is_excused AND member.drop_reason IS NULL
        -- A rollout that failed says in its own words why it was not used; one that gave no token has nothing to use.
        AND NOT (member.status IN ('failed', 'aborted') AND member.termination_reason IS NOT NULL)
        AND NOT coalesce(member.tokens = 0, false)
        -- The trainer has passed it: by its place in the stream, or its step.
        AND CASE
            WHEN member.stream_ordinal < reached.ordinal THEN true
            WHEN member.status = 'running' THEN coalesce(member.step < reached.step, false)
            ELSE trained_step.run_id IS NOT NULL
        END
),
-- The stream gives each place once: what it gave two groups was repeated.
given AS (
    SELECT
        run_id, stream_ordinal, min(step) AS step, min(coalesce(group_id, rollout_id)) AS first_group,
        max(coalesce(group_id, rollout_id)) AS last_group, count(DISTINCT coalesce(group_id, rollout_id)) AS groups
    FROM rollouts
    WHERE stream_ordinal IS NOT NULL AND coalesce(relation, '') NOT IN ('retry', 'continuation', 'subagent', 'fork')
    GROUP BY run_id, stream_ordinal
),
repeated AS (
    SELECT given.run_id, given.stream_ordinal, given.groups, member.group_id, min(member.step) AS step, min(member.rollout_id) AS rollout_id,
        row_number() OVER (
            PARTITION BY given.run_id, given.stream_ordinal ORDER BY min(member.step), member.group_id
        ) AS place,
        first_value(member.group_id) OVER (
            PARTITION BY given.run_id, given.stream_ordinal ORDER BY min(member.step), member.group_id
        ) AS first_group
    FROM given
    JOIN (
        SELECT run_id, stream_ordinal, coalesce(group_id, rollout_id) AS group_id, step, rollout_id FROM rollouts
        WHERE stream_ordinal IS NOT NULL AND coalesce(relation, '') NOT IN ('retry', 'continuation', 'subagent', 'fork')
    ) AS member ON member.run_id = given.run_id AND member.stream_ordinal = given.stream_ordinal
    WHERE given.groups > 1
    GROUP BY given.run_id, given.stream_ordinal, given.groups, member.group_id
),
-- Places behind which the trainer has come, and of which no rollout is on record. Where most are missing, a part was imported.
hole AS (
    SELECT run_id, stream_ordinal + 1 AS first, next_ordinal - 1 AS last, step
    FROM (
        SELECT
            given.run_id, given.stream_ordinal, given.step,
            lead(given.stream_ordinal) OVER (PARTITION BY given.run_id ORDER BY given.stream_ordinal) AS next_ordinal,
            count(*) OVER (PARTITION BY given.run_id) AS known,
            max(given.stream_ordinal) OVER (PARTITION BY given.run_id) - min(given.stream_ordinal) OVER (PARTITION BY given.run_id) + 1
                AS places,
            reached.ordinal
        FROM given
        JOIN reached ON reached.run_id = given.run_id
    )
    WHERE next_ordinal > stream_ordinal + 1 AND next_ordinal <= ordinal AND 2 * known > places
),
-- Rollouts that measure the policy and are not to change it. A build of ours takes them only where it was told to.
measured AS (
    SELECT weight.run_id, min(weight.step) AS step, rollout.group_id, weight.rollout_id, min(weight.build_id) AS build_id,
        CAST(sum(weight.tokens) AS BIGINT) AS tokens
    FROM row_weights AS weight
    JOIN (
        SELECT run_id, rollout_id, min(group_id) AS group_id FROM rollouts GROUP BY run_id, rollout_id
        HAVING min(coalesce(purpose, 'train')) = 'eval' AND max(coalesce(purpose, 'train')) = 'eval'
    ) AS rollout
        ON rollout.run_id = weight.run_id AND rollout.rollout_id = weight.rollout_id
    LEFT ANTI JOIN (SELECT run_id, build_id FROM builds WHERE origin = 'rollbook') AS own
        ON own.run_id = weight.run_id AND own.build_id = weight.build_id
    WHERE weight.tokens > 0
    GROUP BY weight.run_id, rollout.group_id, weight.rollout_id
),
-- Length of what was used against length of what was dropped for the same reason, by ranks.
dropped AS (
    SELECT run_id, drop_reason FROM member WHERE drop_reason IS NOT NULL AND tokens IS NOT NULL
    GROUP BY run_id, drop_reason HAVING count(*) >= 2
),
compared AS (
    SELECT dropped.run_id, dropped.drop_reason, member.drop_reason IS NOT NULL AS is_dropped, member.tokens
    FROM dropped
    JOIN member
        ON member.run_id = dropped.run_id AND member.tokens IS NOT NULL
        AND (member.drop_reason = dropped.drop_reason OR (member.drop_reason IS NULL AND member.status <> 'running'))
),
ranked AS (
    SELECT
        *,
        CAST(rank() OVER lengths AS DOUBLE) + (count(*) OVER equal - 1) / 2.0 AS place
    FROM compared
    WINDOW
        lengths AS (PARTITION BY run_id, drop_reason ORDER BY tokens),
        equal AS (PARTITION BY run_id, drop_reason, tokens)
),
bias AS (
    SELECT
        run_id, drop_reason, count(*) FILTER (WHERE is_dropped) AS dropped, count(*) FILTER (WHERE NOT is_dropped) AS kept,
        avg(tokens) FILTER (WHERE is_dropped) AS dropped_tokens, avg(tokens) FILTER (WHERE NOT is_dropped) AS kept_tokens,
        -- Mann-Whitney: the share of pairs in which the dropped one is the longer.
        (sum(place) FILTER (WHERE is_dropped)
            - count(*) FILTER (WHERE is_dropped) * (count(*) FILTER (WHERE is_dropped) + 1) / 2.0)
            / (count(*) FILTER (WHERE is_dropped) * CAST(count(*) FILTER (WHERE NOT is_dropped) AS DOUBLE)) AS longer
    FROM ranked
    GROUP BY run_id, drop_reason
    HAVING count(*) FILTER (WHERE NOT is_dropped) >= 2
)
SELECT
    'violation' AS outcome, run_id, step, group_id, rollout_id, call_id,
    concat(greatest(coalesce(asked, 0), last_choice + 1), ' choices') AS expected,
    concat(places, ' choices') AS observed,
    concat('request ', request_id, ' gave ', greatest(coalesce(asked, 0), last_choice + 1), ' choices, and ', places,
        ' are stored: what the others were is lost') AS message
FROM request
WHERE places < greatest(coalesce(asked, 0), last_choice + 1)
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, 'one selected choice', concat(selected, ' selected'),
    concat('request ', request_id, ' of rollout ', rollout_id, ' has ', choices, ' choices, of which ', selected, ' are selected')
FROM request
WHERE rollouts = 1 AND choices > 1 AND selected > 1
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, 'a selected choice', 'not selected',
    concat('call ', call_id, ' is said not to be selected, and ', child, ' goes on from it')
FROM passed_over
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, NULL, 'a row, an exclusion or a drop_reason', 'none',
    concat('rollout ', rollout_id,
        CASE WHEN task_id IS NULL THEN '' ELSE concat(' of task ', task_id) END,
        CASE WHEN stream_ordinal IS NULL THEN '' ELSE concat(', number ', stream_ordinal, ' of the stream,') END,
        ' was sampled, no row trains it, and nothing says why')
FROM lost
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, NULL, concat('place ', stream_ordinal, ' of the stream once'), concat(groups, ' groups'),
    concat('group ', group_id, ' was sampled for place ', stream_ordinal, ' of the stream, as group ', first_group,
        ' was: the stream gave it out again')
FROM repeated
WHERE place > 1
UNION ALL
SELECT
    'violation', run_id, step, NULL, NULL, NULL, 'a rollout for each place of the stream, used or dropped for a reason', 'none',
    CASE
        WHEN first = last THEN concat('place ', first, ' of the stream was passed, and no rollout of it is on record')
        ELSE concat('places ', first, ' to ', last, ' of the stream were passed, and no rollout of them is on record')
    END
FROM hole
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, NULL, 'no row', concat(tokens, ' trained tokens'),
    concat('rollout ', rollout_id, ' measures the policy (purpose eval), and build ', build_id, ' trains ', tokens, ' of its tokens')
FROM measured
UNION ALL
SELECT
    'rule', run_id, NULL, NULL, NULL, NULL, 'as many long as short ones',
    concat('the dropped one is longer in ', round(100 * longer), ' of 100 pairs'),
    concat(dropped, ' rollouts dropped as "', drop_reason, '" have ', round(dropped_tokens, 1), ' output tokens on average, the ', kept,
        ' others ', round(kept_tokens, 1), ': what trains is not what was sampled')
FROM bias
-- All pairs agree, or more than chance makes of so many. What was dropped for its outcome is as long as that outcome is.
WHERE ((longer = 0 OR longer = 1)
        AND NOT regexp_like(drop_reason, 'varian|advantage|solved|correct|easy|hard|dynamic|duplicate|invalid|error|fail|score|reward|verif', 'i'))
    OR abs(longer - 0.5) * sqrt(12.0 * dropped * kept / (dropped + kept + 1)) > 4
