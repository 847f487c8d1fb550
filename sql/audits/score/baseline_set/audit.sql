-- @question Does the baseline of an imported credit run over the distinct rollouts of its group?
-- @layer credit
-- @severity error
-- @version 1
-- @outcome violation
-- @needs credits.baseline_scope, credits.baseline_key, credits.baseline_count, credits.baseline_rollout_ids, rollouts.group_id
-- @examined
--   SELECT run_id, count(*) AS examined FROM credits
--   WHERE baseline_count IS NOT NULL OR baseline_rollout_ids IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT credit.run_id, credit.derivation_id, 'credits.baseline_rollout_ids' AS missing,
--       concat('say over which rollouts each baseline runs, or how many; of ', count(*), ' credits neither is known') AS remedy
--   FROM credits AS credit
--   LEFT ANTI JOIN (SELECT derivation_id FROM derivations WHERE snapshot IS NOT NULL) AS own
--     ON own.derivation_id = credit.derivation_id
--   WHERE credit.baseline_count IS NULL AND credit.baseline_rollout_ids IS NULL
--   GROUP BY credit.run_id, credit.derivation_id
WITH own AS (
    SELECT DISTINCT derivation_id FROM derivations WHERE snapshot IS NOT NULL
),
credit AS (
    SELECT
        credit.run_id, credit.derivation_id, credit.name, credit.rollout_id, credit.call_id, credit.value, credit.baseline_scope,
        coalesce(credit.baseline_key, credit.group_id) AS baseline_key, credit.baseline_count, credit.baseline_rollout_ids
    FROM credits AS credit
    LEFT ANTI JOIN own ON own.derivation_id = credit.derivation_id
),
member AS (
    SELECT
        run_id, rollout_id, min(step) AS step, min(group_id) AS group_id, min(task_id) AS task_id,
        min(CASE
            WHEN relation IN ('retry', 'continuation') THEN coalesce(origin_rollout_id, rollout_id) ELSE rollout_id
        END) AS place,
        bool_or(drop_reason IS NOT NULL OR coalesce(status, 'completed') NOT IN ('completed', 'truncated')) AS is_left_out
    FROM rollouts
    WHERE coalesce(purpose, 'train') = 'train' AND coalesce(relation, '') <> 'subagent'
    GROUP BY run_id, rollout_id
),
trainable AS (
    SELECT run_id, rollout_id, count(*) AS calls, count(tokens) AS known, sum(tokens) AS tokens
    FROM (
        SELECT
            run_id, rollout_id,
            CASE
                WHEN NOT coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact')) THEN 0
                WHEN action_mask IS NOT NULL THEN CASE WHEN any_true(action_mask) THEN 1 ELSE 0 END
                ELSE output_len
            END AS tokens
        FROM calls
    )
    GROUP BY run_id, rollout_id
),
idle AS (
    SELECT run_id, rollout_id FROM trainable WHERE tokens = 0 AND known = calls
),
-- A rollout whose value is null or left out need not be in a baseline, and may be.
empty AS (
    SELECT run_id, rollout_id FROM rewards WHERE call_id IS NULL GROUP BY run_id, rollout_id HAVING count(value) = 0
    UNION
    SELECT run_id, rollout_id FROM credits WHERE call_id IS NULL AND token_values IS NULL
    GROUP BY run_id, rollout_id HAVING count(value) = 0
    UNION
    SELECT run_id, rollout_id FROM idle
),
size AS (
    SELECT
        member.run_id, member.group_id, min(member.step) AS step, count(DISTINCT member.place) AS most,
        count(DISTINCT CASE WHEN NOT member.is_left_out AND empty.rollout_id IS NULL THEN member.place END) AS least,
        count(DISTINCT member.task_id) AS tasks
    FROM member
    LEFT JOIN empty ON empty.run_id = member.run_id AND empty.rollout_id = member.rollout_id
    WHERE member.group_id IS NOT NULL
    GROUP BY member.run_id, member.group_id
),
row_count AS (
    SELECT member.run_id, member.group_id, count(*) AS rows
    FROM (
        SELECT DISTINCT run_id, build_id, step, optimizer_step, micro_batch, rank, row_index, rollout_id
        FROM samples WHERE rollout_id IS NOT NULL AND NOT coalesce(is_pad, false) AND coalesce(epoch, 0) = 0
    ) AS row
    JOIN member ON member.run_id = row.run_id AND member.rollout_id = row.rollout_id
    GROUP BY member.run_id, member.group_id
),
call_count AS (
    SELECT run_id, group_id, count(*) AS calls
    FROM calls
    WHERE group_id IS NOT NULL AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
    GROUP BY run_id, group_id
),
counted AS (
    SELECT
        credit.run_id, credit.derivation_id, credit.name, credit.baseline_key AS group_id, min(credit.rollout_id) AS rollout_id,
        max(credit.baseline_count) AS most, min(credit.baseline_count) AS least
    FROM credit
    JOIN size ON size.run_id = credit.run_id AND size.group_id = credit.baseline_key
    WHERE coalesce(credit.baseline_scope, 'group') = 'group' AND credit.baseline_count IS NOT NULL
    GROUP BY credit.run_id, credit.derivation_id, credit.name, credit.baseline_key
),
named AS (
    SELECT
        run_id, derivation_id, name, baseline_scope, baseline_key, rollout_id, baseline_count, cardinality(baseline_rollout_ids) AS members,
        cardinality(array_distinct(baseline_rollout_ids)) AS distinct_members
    FROM credit
    WHERE baseline_rollout_ids IS NOT NULL
),
listed AS (
    SELECT DISTINCT run_id, derivation_id, name, baseline_scope, baseline_key, member
    FROM (SELECT run_id, derivation_id, name, baseline_scope, baseline_key, unnest(baseline_rollout_ids) AS member FROM credit)
),
-- A retry stands in the place of the rollout it repeats.
placed AS (
    SELECT listed.run_id, listed.derivation_id, listed.baseline_key, coalesce(member.place, listed.member) AS place
    FROM listed
    LEFT JOIN member ON member.run_id = listed.run_id AND member.rollout_id = listed.member
),
missing AS (
    SELECT base.run_id, base.derivation_id, base.name, base.baseline_key, member.rollout_id, member.step
    FROM (
        SELECT DISTINCT run_id, derivation_id, name, baseline_key
        FROM listed WHERE coalesce(baseline_scope, 'group') = 'group'
    ) AS base
    JOIN member ON member.run_id = base.run_id AND member.group_id = base.baseline_key
    LEFT ANTI JOIN placed
        ON placed.run_id = base.run_id AND placed.derivation_id IS NOT DISTINCT FROM base.derivation_id
        AND placed.baseline_key = base.baseline_key AND placed.place = member.place
    LEFT ANTI JOIN empty ON empty.run_id = member.run_id AND empty.rollout_id = member.rollout_id
    WHERE NOT member.is_left_out AND member.place = member.rollout_id
)
SELECT
    counted.run_id, size.step, counted.group_id,
    CAST(NULL AS VARCHAR) AS rollout_id,
    counted.derivation_id,
    CASE WHEN size.least = size.most THEN concat(size.most, ' rollouts') ELSE concat(size.least, ' to ', size.most, ' rollouts') END
        AS expected,
    concat(CASE WHEN counted.most > size.most THEN counted.most ELSE counted.least END, ' members') AS observed,
    concat('the baseline of group ', counted.group_id, ' in ', counted.name, ' counts ',
        CASE WHEN counted.most > size.most THEN counted.most ELSE counted.least END, ' members, and the group holds ', size.most,
        ' distinct rollouts',
        CASE
            WHEN counted.most = row_count.rows THEN concat(': it counts the ', row_count.rows, ' rows that they were cut into')
            WHEN counted.most = call_count.calls THEN concat(': it counts their ', call_count.calls, ' calls')
            ELSE ''
        END) AS message
FROM counted
JOIN size ON size.run_id = counted.run_id AND size.group_id = counted.group_id
LEFT JOIN row_count ON row_count.run_id = counted.run_id AND row_count.group_id = counted.group_id
LEFT JOIN call_count ON call_count.run_id = counted.run_id AND call_count.group_id = counted.group_id
WHERE counted.most > size.most OR counted.least < size.least
UNION ALL
SELECT
    counted.run_id, size.step, counted.group_id, NULL, counted.derivation_id, 'rollouts of 1 task', concat('rollouts of ', size.tasks),
    concat('the baseline of group ', counted.group_id, ' in ', counted.name, ' counts ', counted.most, ' rollouts of ', size.tasks,
        ' tasks, which have nothing to be compared by')
FROM counted
JOIN size ON size.run_id = counted.run_id AND size.group_id = counted.group_id
WHERE size.tasks > 1 AND counted.most > 1
UNION ALL
SELECT
    named.run_id, NULL, min(named.baseline_key), min(named.rollout_id), named.derivation_id,
    concat(max(named.distinct_members), ' members'), concat(max(named.members), ' members'),
    concat('the baseline of group ', min(named.baseline_key), ' in ', min(named.name), ' names ', max(named.members), ' members, of which ',
        max(named.distinct_members), ' are distinct: rows were counted, not rollouts')
FROM named
WHERE named.members > named.distinct_members
GROUP BY named.run_id, named.derivation_id, named.baseline_key
UNION ALL
SELECT
    named.run_id, NULL, min(named.baseline_key), min(named.rollout_id), named.derivation_id,
    concat(max(named.distinct_members), ' members'), concat(max(named.baseline_count), ' counted'),
    concat('the baseline of group ', min(named.baseline_key), ' in ', min(named.name), ' names ', max(named.distinct_members),
        ' rollouts and counts ', max(named.baseline_count))
FROM named
WHERE named.members = named.distinct_members AND named.baseline_count <> named.distinct_members
GROUP BY named.run_id, named.derivation_id, named.baseline_key
UNION ALL
SELECT
    listed.run_id, member.step, listed.baseline_key, listed.member, listed.derivation_id, concat('a rollout of group ', listed.baseline_key),
    coalesce(concat('one of group ' || member.group_id), 'no rollout of the run'),
    concat('rollout ', listed.member, ' is in the baseline of group ', listed.baseline_key, ', and ',
        CASE
            WHEN member.rollout_id IS NULL THEN 'the run does not hold it'
            ELSE concat('was sampled in group ', coalesce(member.group_id, 'none'))
        END)
FROM listed
JOIN size ON size.run_id = listed.run_id AND size.group_id = listed.baseline_key
LEFT JOIN member ON member.run_id = listed.run_id AND member.rollout_id = listed.member
WHERE coalesce(listed.baseline_scope, 'group') = 'group' AND member.group_id IS DISTINCT FROM listed.baseline_key
UNION ALL
SELECT
    listed.run_id, member.step, listed.baseline_key, listed.member, listed.derivation_id, 'a rollout that trains',
    'no token of it trains',
    concat('rollout ', listed.member, ' moves the baseline of group ', listed.baseline_key, ', and no token of it trains')
FROM listed
JOIN idle ON idle.run_id = listed.run_id AND idle.rollout_id = listed.member
LEFT JOIN member ON member.run_id = listed.run_id AND member.rollout_id = listed.member
UNION ALL
SELECT
    run_id, step, baseline_key, rollout_id, derivation_id, 'a member of the baseline', 'left out',
    concat('rollout ', rollout_id, ' of group ', baseline_key, ' is left out of its baseline in ', name, ', and nothing says why')
FROM missing
