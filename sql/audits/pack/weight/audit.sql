-- @question Does every rollout have the share of an optimizer step's loss weight that the declared objective gives it?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs builds.objective_unit, runs.objective_unit, samples.loss_weights, samples.segments
-- @examined
--   SELECT run_id, count(*) AS examined FROM (
--     SELECT DISTINCT run_id, build_id, epoch, optimizer_step, rollout_id FROM row_weights
--     WHERE tokens > 0 AND rollout_id IS NOT NULL
--   ) GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which rollout each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND (rollout_id IS NULL OR (action_mask IS NULL AND loss_weights IS NULL)) AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'builds.objective_unit' AS missing,
--       'say what one unit of loss weight belongs to: token, row, rollout, group or constant' AS remedy
--   FROM (SELECT DISTINCT run_id, build_id FROM samples) AS sample
--   LEFT JOIN (
--     SELECT DISTINCT run_id, build_id FROM row_build
--     WHERE objective_unit IN ('token', 'row', 'rollout', 'group', 'constant')
--       AND coalesce(objective_scope, 'step') IN ('step', 'micro_batch', 'rank')
--   ) AS declared
--     ON declared.run_id = sample.run_id AND declared.build_id = sample.build_id
--   LEFT JOIN (SELECT DISTINCT run_id FROM runs WHERE objective_unit IS NOT NULL) AS expected ON expected.run_id = sample.run_id
--   WHERE declared.build_id IS NULL AND expected.run_id IS NULL
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'samples.loss_weights' AS missing,
--       'keep the coefficient that each token''s loss got, or declare the build''s objective_unit, from which it follows' AS remedy
--   FROM (SELECT run_id, build_id FROM samples WHERE loss_weights IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id) AS sample
--   LEFT JOIN (SELECT DISTINCT run_id, build_id FROM row_build WHERE objective_unit IS NOT NULL) AS declared
--     ON declared.run_id = sample.run_id AND declared.build_id = sample.build_id
--   WHERE declared.build_id IS NULL

-- The objectives that a build is held to: its own, and the run's where that is another.
WITH declared AS (
    SELECT
        sample.run_id, sample.build_id, build.objective_unit AS build_unit, coalesce(build.objective_scope, 'step') AS build_scope,
        run.objective_unit AS run_unit, coalesce(run.objective_scope, 'step') AS run_scope,
        coalesce(build.origin = 'rollbook', false) AS is_own
    FROM (SELECT DISTINCT run_id, build_id FROM row_weights WHERE rollout_id IS NOT NULL) AS sample
    LEFT JOIN (
        SELECT
            run_id, build_id, max(objective_unit) AS objective_unit, max(objective_scope) AS objective_scope, max(origin) AS origin
        FROM row_build GROUP BY run_id, build_id
    ) AS build ON build.run_id = sample.run_id AND build.build_id = sample.build_id
    LEFT JOIN (
        SELECT run_id, max(objective_unit) AS objective_unit, max(objective_scope) AS objective_scope FROM runs GROUP BY run_id
    ) AS run ON run.run_id = sample.run_id
),
objective AS (
    -- A share is compared with that of whole rollouts. Of whole rollouts each is one row, so that a unit of rows gives all the
    -- same; where the run declares another unit, that one decides, and the build's weights need only be those it declares. So do
    -- those of a build made here: its unit was chosen by who asked for it.
    SELECT
        run_id, build_id, 'violation' AS outcome, 'build' AS whose, build_unit AS named,
        CASE WHEN build_unit = 'row' AND coalesce(run_unit, 'row') = 'row' AND NOT is_own THEN 'rollout' ELSE build_unit END AS unit,
        CASE WHEN build_unit = 'row' AND coalesce(run_unit, 'row') = 'row' AND NOT is_own THEN 'step' ELSE build_scope END AS scope
    FROM declared WHERE build_unit IS NOT NULL
    UNION ALL
    SELECT
        run_id, build_id, 'rule', 'run', run_unit,
        CASE WHEN run_unit = 'row' THEN 'rollout' ELSE run_unit END,
        CASE WHEN run_unit = 'row' THEN 'step' ELSE run_scope END
    FROM declared
    WHERE run_unit IS NOT NULL AND (build_unit IS NULL OR build_unit <> run_unit OR build_scope <> run_scope)
    UNION ALL
    -- What the rows get from the build's objective as they lie, where no weights are kept.
    SELECT run_id, build_id, 'violation', 'plan', build_unit AS named, build_unit AS unit, build_scope
    FROM declared WHERE build_unit IS NOT NULL
),
grouped AS (
    SELECT row_weights.*, coalesce(member.group_id, row_weights.rollout_id) AS group_id
    FROM row_weights
    LEFT JOIN (
        SELECT run_id, rollout_id, min(group_id) AS group_id FROM rollouts GROUP BY run_id, rollout_id
    ) AS member ON member.run_id = row_weights.run_id AND member.rollout_id = row_weights.rollout_id
    WHERE row_weights.tokens > 0 AND row_weights.rollout_id IS NOT NULL
),
scoped AS (
    SELECT
        grouped.*, objective.outcome, objective.whose, objective.unit,
        CASE
            WHEN objective.unit = 'constant' THEN 'step'
            WHEN objective.scope = 'micro_batch' THEN concat(grouped.rank, '/', grouped.micro_batch)
            WHEN objective.scope = 'rank' THEN CAST(grouped.rank AS VARCHAR)
            ELSE 'step'
        END AS part
    FROM grouped
    JOIN objective ON objective.run_id = grouped.run_id AND objective.build_id IS NOT DISTINCT FROM grouped.build_id
),
by_row AS (
    SELECT
        *,
        CAST(tokens AS DOUBLE) / sum(tokens) OVER (PARTITION BY run_id, build_id, whose, epoch, optimizer_step, part, row_number) AS of_row
    FROM scoped
),
by_rollout AS (
    SELECT
        run_id, build_id, outcome, whose, unit, epoch, optimizer_step, part, rollout_id, group_id,
        sum(tokens) AS tokens, sum(of_row) AS rows
    FROM by_row
    GROUP BY run_id, build_id, outcome, whose, unit, epoch, optimizer_step, part, rollout_id, group_id
),
by_group AS (
    SELECT
        *,
        CAST(tokens AS DOUBLE) / sum(tokens) OVER (PARTITION BY run_id, build_id, whose, epoch, optimizer_step, part, group_id) AS of_group
    FROM by_rollout
),
in_part AS (
    SELECT
        *,
        CASE unit
            WHEN 'rollout' THEN 1.0
            WHEN 'row' THEN rows
            WHEN 'group' THEN of_group
            WHEN 'token' THEN CAST(tokens AS DOUBLE)
            WHEN 'constant' THEN CAST(tokens AS DOUBLE)
        END AS units
    FROM by_group
),
in_step AS (
    SELECT
        *, units / sum(units) OVER (PARTITION BY run_id, build_id, whose, epoch, optimizer_step, part) AS of_part
    FROM in_part
),
wanted AS (
    -- Parts (micro-batches or ranks) are averaged: each is one term of the step.
    SELECT run_id, build_id, outcome, whose, unit, epoch, optimizer_step, rollout_id, sum(of_part) AS parts
    FROM in_step
    GROUP BY run_id, build_id, outcome, whose, unit, epoch, optimizer_step, rollout_id
),
wanted_share AS (
    SELECT *, parts / sum(parts) OVER (PARTITION BY run_id, build_id, whose, epoch, optimizer_step) AS expected
    FROM wanted
),
given AS (
    SELECT
        run_id, build_id, min(step) AS step, epoch, optimizer_step, rollout_id, sum(weight) AS weight,
        count(*) FILTER (WHERE NOT is_weighted) AS unweighted,
        count(*) FILTER (WHERE NOT is_finite) AS broken
    FROM row_weights
    WHERE rollout_id IS NOT NULL
    GROUP BY run_id, build_id, epoch, optimizer_step, rollout_id
),
given_share AS (
    SELECT
        *,
        weight / nullif(sum(weight) OVER (PARTITION BY run_id, build_id, epoch, optimizer_step), 0) AS share,
        sum(unweighted) OVER (PARTITION BY run_id, build_id, epoch, optimizer_step) AS unknown_count,
        sum(broken) OVER (PARTITION BY run_id, build_id, epoch, optimizer_step) AS broken_count
    FROM given
),
judged AS (
    SELECT
        given.run_id, given.build_id, given.step, given.epoch, given.optimizer_step, given.rollout_id,
        kind.outcome, kind.named, kind.whose,
        coalesce(wanted.expected, 0.0) AS expected,
        CASE WHEN given.unknown_count = 0 THEN given.share WHEN plan.unit IS NOT NULL THEN coalesce(own.expected, 0.0) END AS observed
    FROM given_share AS given
    JOIN (SELECT * FROM objective WHERE whose <> 'plan' AND unit IN ('rollout', 'row', 'group', 'token', 'constant')) AS kind
        ON kind.run_id = given.run_id AND kind.build_id IS NOT DISTINCT FROM given.build_id
    LEFT JOIN wanted_share AS wanted
        ON wanted.run_id = given.run_id AND wanted.build_id IS NOT DISTINCT FROM given.build_id AND wanted.whose = kind.whose
        AND wanted.epoch = given.epoch AND wanted.optimizer_step IS NOT DISTINCT FROM given.optimizer_step
        AND wanted.rollout_id = given.rollout_id
    LEFT JOIN (SELECT * FROM objective WHERE whose = 'plan') AS plan
        ON plan.run_id = given.run_id AND plan.build_id IS NOT DISTINCT FROM given.build_id
    LEFT JOIN (SELECT * FROM wanted_share WHERE whose = 'plan') AS own
        ON own.run_id = given.run_id AND own.build_id IS NOT DISTINCT FROM given.build_id
        AND own.epoch = given.epoch AND own.optimizer_step IS NOT DISTINCT FROM given.optimizer_step
        AND own.rollout_id = given.rollout_id
    -- Where one weight is no number the step has no sum: only that row is accused.
    WHERE given.broken_count = 0
)
-- findings: what is above is the loss account's as well.
SELECT
    outcome, run_id, step, rollout_id, build_id, CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    CAST(round(expected, 9) AS VARCHAR) AS expected,
    CAST(round(observed, 9) AS VARCHAR) AS observed,
    concat('rollout ', rollout_id, ' has ', round(observed, 9), ' of the loss weight of optimizer step ', coalesce(CAST(optimizer_step AS VARCHAR), '?'),
        ' where the ', whose, '''s objective ', named, ' gives it ', round(expected, 9)) AS message
FROM judged
-- A share of a large step is small: an error of a thousandth of it counts as well.
WHERE abs(observed - expected) > 1e-6 * least(1.0, 1000.0 * greatest(expected, observed))
UNION ALL
SELECT
    'violation', run_id, step, rollout_id, build_id, epoch, micro_batch, rank, row_index,
    'a finite weight', CAST(weight AS VARCHAR),
    concat('row ', coalesce(CAST(row_index AS VARCHAR), '?'), ' of rollout ', rollout_id, ' has a loss weight that is no number, and optimizer step ',
        coalesce(CAST(optimizer_step AS VARCHAR), '?'), ' has no sum')
FROM row_weights
WHERE NOT is_finite
