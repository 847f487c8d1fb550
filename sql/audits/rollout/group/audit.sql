-- @question Does every group hold the rollouts it should, of one task, and does its baseline rest on just those?
-- @layer credit
-- @severity error
-- @version 3
-- @outcome violation
-- @needs rollouts.group_id, runs.expected_group_size, runs.credit_rule.incomplete_group, credits.baseline_count
-- @examined
--   SELECT run_id, count(DISTINCT group_id) AS examined FROM rollouts WHERE group_id IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT member.run_id, 'runs.expected_group_size' AS missing,
--       concat('say how many rollouts a complete group holds; the run has ', count(DISTINCT member.group_id), ' groups') AS remedy
--   FROM rollouts AS member
--   LEFT JOIN (SELECT DISTINCT run_id FROM runs WHERE expected_group_size IS NOT NULL) AS declared
--     ON declared.run_id = member.run_id
--   WHERE member.group_id IS NOT NULL AND coalesce(member.purpose, 'train') = 'train' AND declared.run_id IS NULL
--   GROUP BY member.run_id
-- @undeclared
--   SELECT run_id, 'rollouts.group_id' AS missing,
--       concat('say which rollouts are compared with each other; ', count(*), ' training rollouts do not') AS remedy
--   FROM rollouts WHERE group_id IS NULL AND coalesce(purpose, 'train') = 'train' GROUP BY run_id
WITH rule AS (
    SELECT run_id, max(expected_group_size) AS expected_group_size, max(credit_rule['incomplete_group']) AS incomplete_group
    FROM runs
    GROUP BY run_id
),
moved AS (
    SELECT
        run_id, rollout_id,
        first_value(step ORDER BY revision, step) FILTER (WHERE step IS NOT NULL) AS first_step,
        last_value(step ORDER BY revision, step) FILTER (WHERE step IS NOT NULL) AS last_step,
        count(DISTINCT step) AS steps,
        min(group_id) AS low_group,
        max(group_id) AS high_group,
        first_value(group_id ORDER BY revision, group_id) FILTER (WHERE group_id IS NOT NULL) AS first_group,
        count(DISTINCT group_id) AS groups
    FROM rollouts_history
    GROUP BY run_id, rollout_id
    HAVING count(DISTINCT step) > 1 OR count(DISTINCT group_id) > 1
),
member AS (
    -- The first group that a rollout was written in stands. A retry stands in the place of the rollout it repeats; a
    -- rollout that another one made is in no group of its own.
    SELECT
        rollout.run_id, rollout.step, coalesce(moved.first_group, rollout.group_id) AS group_id,
        -- Where a source names no task, what it records of it tells tasks apart.
        coalesce(rollout.task_id, rollout.task) AS task_id, rollout.initial_state_digest,
        CASE
            WHEN rollout.relation IN ('retry', 'continuation') THEN coalesce(rollout.origin_rollout_id, rollout.rollout_id)
            ELSE rollout.rollout_id
        END AS place
    FROM rollouts AS rollout
    LEFT JOIN moved ON moved.run_id = rollout.run_id AND moved.rollout_id = rollout.rollout_id
    WHERE rollout.group_id IS NOT NULL
        AND coalesce(rollout.purpose, 'train') = 'train'
        AND coalesce(rollout.relation, '') <> 'subagent'
),
size AS (
    SELECT
        run_id, group_id, min(step) AS step, count(DISTINCT place) AS members, count(DISTINCT task_id) AS tasks,
        min(task_id) AS first_task, max(task_id) AS last_task
    FROM member
    GROUP BY run_id, group_id
),
-- Environments that began otherwise are other instances of a task, unless every rollout has a beginning of its own.
instance AS (
    SELECT run_id, group_id, min(step) AS step, count(*) AS instances, min(digest) AS first_digest, max(digest) AS last_digest
    FROM (
        SELECT run_id, group_id, initial_state_digest AS digest, min(step) AS step, count(DISTINCT place) AS members
        FROM member GROUP BY run_id, group_id, initial_state_digest
    )
    GROUP BY run_id, group_id
    HAVING count(*) > 1 AND count(digest) = count(*) AND min(members) > 1
),
-- Credits that we derived follow a written rule of their own; of imported ones the run's rule is asked.
baseline AS (
    SELECT
        credit.run_id, credit.derivation_id, coalesce(credit.baseline_key, credit.group_id) AS group_id,
        max(credit.baseline_count) AS counted
    FROM credits AS credit
    LEFT JOIN (SELECT DISTINCT derivation_id FROM derivations WHERE snapshot IS NOT NULL) AS own
        ON own.derivation_id = credit.derivation_id
    WHERE own.derivation_id IS NULL AND credit.baseline_scope = 'group' AND credit.baseline_count IS NOT NULL
    GROUP BY credit.run_id, credit.derivation_id, coalesce(credit.baseline_key, credit.group_id)
),
baseline_member AS (
    SELECT DISTINCT run_id, derivation_id, baseline AS group_id, member AS rollout_id
    FROM (
        SELECT
            run_id, derivation_id, coalesce(baseline_key, group_id) AS baseline,
            unnest(baseline_rollout_ids) AS member
        FROM credits
        WHERE baseline_rollout_ids IS NOT NULL
    )
),
trainable AS (
    SELECT run_id, rollout_id, count(*) AS calls, count(tokens) AS known, sum(tokens) AS tokens
    FROM (
        SELECT
            run_id, rollout_id,
            CASE
                WHEN NOT coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact')) THEN 0
                -- Masks of zeros and ones are what the source meant to train; one item that is true is enough.
                WHEN action_mask IS NOT NULL THEN CASE WHEN any_true(action_mask) THEN 1 ELSE 0 END
                ELSE output_len
            END AS tokens
        FROM calls
    )
    GROUP BY run_id, rollout_id
),
-- What lies below a rollout has its step and group: given otherwise, it was sampled, scored or trained as another's.
below AS (
    SELECT
        row.source, row.run_id, row.rollout_id, row.step, row.group_id, row.call_id, row.rows,
        rollout.step AS rollout_step, rollout.group_id AS rollout_group
    FROM (
        SELECT source, run_id, rollout_id, step, group_id, min(call_id) AS call_id, count(*) AS rows
        FROM (
            SELECT 'calls' AS source, run_id, rollout_id, step, group_id, call_id FROM calls
            UNION ALL SELECT 'scores', run_id, rollout_id, step, group_id, call_id FROM scores_history
            UNION ALL SELECT 'environment_records', run_id, rollout_id, step, group_id, call_id FROM environment_records
            UNION ALL SELECT 'token_signals', run_id, rollout_id, step, group_id, call_id FROM token_signals
            UNION ALL SELECT 'credits', run_id, rollout_id, step, group_id, call_id FROM credits_history
            -- The step of a row is the one that trains it.
            UNION ALL SELECT 'samples', run_id, rollout_id, NULL, group_id, NULL FROM samples
        )
        WHERE rollout_id IS NOT NULL
        GROUP BY source, run_id, rollout_id, step, group_id
    ) AS row
    JOIN (
        SELECT run_id, rollout_id, min(step) AS step, min(group_id) AS group_id
        FROM rollouts GROUP BY run_id, rollout_id HAVING count(DISTINCT step) < 2 AND count(DISTINCT group_id) < 2
    ) AS rollout ON rollout.run_id = row.run_id AND rollout.rollout_id = row.rollout_id
    WHERE row.step <> rollout.step OR row.group_id <> rollout.group_id
),
-- A member without a token to train is rightly left out of a baseline.
idle AS (
    SELECT member.run_id, member.group_id, count(DISTINCT member.place) AS members
    FROM member
    JOIN trainable ON trainable.run_id = member.run_id AND trainable.rollout_id = member.place
    WHERE trainable.tokens = 0 AND trainable.known = trainable.calls
    GROUP BY member.run_id, member.group_id
)
SELECT
    'rule' AS outcome, size.run_id, size.step, size.group_id,
    CAST(NULL AS VARCHAR) AS rollout_id,
    CAST(NULL AS VARCHAR) AS derivation_id,
    CAST(rule.expected_group_size AS VARCHAR) AS expected,
    CAST(size.members AS VARCHAR) AS observed,
    concat('group ', size.group_id, ' holds ', size.members, ' rollouts where the run declares ', rule.expected_group_size) AS message
FROM size
JOIN rule ON rule.run_id = size.run_id
WHERE size.members <> rule.expected_group_size
UNION ALL
SELECT
    'violation', run_id, step, group_id, NULL, NULL, '1 task', concat(tasks, ' tasks'),
    concat('group ', group_id, ' holds rollouts of ', tasks, ' tasks, such as ', first_task, ' and ', last_task)
FROM size
WHERE tasks > 1
UNION ALL
SELECT
    'violation', instance.run_id, instance.step, instance.group_id, NULL, NULL, '1 initial state', concat(instance.instances, ' initial states'),
    concat('group ', instance.group_id, ' holds rollouts of ', instance.instances, ' instances of its task: environments that began as ',
        instance.first_digest, ' and as ', instance.last_digest)
FROM instance
LEFT ANTI JOIN (SELECT run_id, group_id FROM size WHERE tasks > 1) AS told
    ON told.run_id = instance.run_id AND told.group_id = instance.group_id
UNION ALL
SELECT
    'violation', run_id, first_step, first_group, rollout_id, NULL, first_group AS expected,
    CASE WHEN first_group = high_group THEN low_group ELSE high_group END,
    concat('rollout ', rollout_id, ' was first written in group ', first_group, ', a later row of it names group ',
        CASE WHEN first_group = high_group THEN low_group ELSE high_group END)
FROM moved
WHERE groups > 1
UNION ALL
SELECT
    'violation', run_id, first_step, first_group, rollout_id, NULL, CAST(first_step AS VARCHAR), CAST(last_step AS VARCHAR),
    concat('rollout ', rollout_id, ' was first written at step ', first_step, ', a later row of it names step ', last_step)
FROM moved
WHERE steps > 1
UNION ALL
SELECT
    'rule', baseline.run_id, size.step, baseline.group_id, NULL, baseline.derivation_id,
    CAST(rule.expected_group_size AS VARCHAR), CAST(baseline.counted AS VARCHAR),
    concat('the baseline of group ', baseline.group_id, ' counts ', baseline.counted, ' rollouts of ', rule.expected_group_size,
        CASE
            WHEN rule.incomplete_group IS NULL THEN ', and the run does not declare what an incomplete group gets (credit_rule.incomplete_group)'
            ELSE concat(', where the run declares incomplete_group = ', rule.incomplete_group)
        END)
FROM baseline
JOIN rule ON rule.run_id = baseline.run_id
LEFT JOIN size ON size.run_id = baseline.run_id AND size.group_id = baseline.group_id
LEFT JOIN idle ON idle.run_id = baseline.run_id AND idle.group_id = baseline.group_id
WHERE baseline.counted > rule.expected_group_size
    OR (baseline.counted < rule.expected_group_size - coalesce(idle.members, 0) AND coalesce(rule.incomplete_group, '') <> 'keep')
UNION ALL
SELECT
    'violation', member.run_id, size.step, member.group_id, member.rollout_id, member.derivation_id,
    'a rollout that trains', 'no token of it trains',
    concat('rollout ', member.rollout_id, ' is in the baseline of group ', member.group_id, ', and no token of it trains')
FROM baseline_member AS member
JOIN trainable ON trainable.run_id = member.run_id AND trainable.rollout_id = member.rollout_id
LEFT JOIN size ON size.run_id = member.run_id AND size.group_id = member.group_id
WHERE trainable.tokens = 0 AND trainable.known = trainable.calls
UNION ALL
SELECT
    'violation', run_id, rollout_step, rollout_group, rollout_id, NULL,
    concat_ws(', ', 'step ' || CAST(rollout_step AS VARCHAR), 'group ' || rollout_group),
    concat_ws(', ', 'step ' || CAST(step AS VARCHAR), 'group ' || group_id),
    concat(rows, ' rows of ', source, ' of rollout ', rollout_id, concat(', first of call ' || call_id), ', stand under ',
        concat_ws(', ', 'step ' || CAST(step AS VARCHAR), 'group ' || group_id), '; the rollout was sampled for ',
        concat_ws(', ', 'step ' || CAST(rollout_step AS VARCHAR), 'group ' || rollout_group))
FROM below
