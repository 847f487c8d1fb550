-- @question Is every trained token's advantage its credit?
-- @layer credit
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.advantages, samples.segments, credits.value, builds.derivation_id, builds.advantage_scale
-- @examined
--   SELECT run_id, sum(length) AS examined FROM trained_advantage GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.advantages' AS missing,
--       concat('keep the advantages that the rows trained with; ', count(*), ' rows have none') AS remedy
--   FROM samples WHERE advantages IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which rollout each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'builds.derivation_id' AS missing,
--       concat('name the derivation whose upstream is the credit that was trained; the run has ', credit.several, ' credits') AS remedy
--   FROM (SELECT DISTINCT run_id, build_id FROM samples) AS sample
--   JOIN (
--     SELECT run_id, count(*) AS several
--     FROM (SELECT DISTINCT run_id, name, derivation_id FROM credits WHERE coalesce(quantity, 'advantage') = 'advantage')
--     GROUP BY run_id HAVING count(*) > 1
--   ) AS credit ON credit.run_id = sample.run_id
--   LEFT JOIN (SELECT DISTINCT run_id, build_id FROM build_credit) AS named
--     ON named.run_id = sample.run_id AND named.build_id = sample.build_id
--   WHERE named.build_id IS NULL
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'credits.value' AS missing,
--       'import the credits that the advantages were made from, or run a credit recipe' AS remedy
--   FROM (SELECT DISTINCT run_id, build_id FROM samples WHERE advantages IS NOT NULL) AS sample
--   LEFT JOIN (SELECT DISTINCT run_id FROM credits WHERE coalesce(quantity, 'advantage') = 'advantage') AS credit
--     ON credit.run_id = sample.run_id
--   WHERE credit.run_id IS NULL

-- The credit of a build; where it names none, the only one of the run.
WITH of_build AS (
    SELECT
        upstream.build_id, credit.run_id, credit.rollout_id, credit.call_id, credit.level, credit.value, credit.token_values, true AS is_named
    FROM build_credit AS upstream
    JOIN credits_history AS credit ON credit.derivation_id = upstream.derivation_id AND credit.run_id = upstream.run_id
    WHERE coalesce(credit.quantity, 'advantage') = 'advantage'
    UNION ALL
    SELECT
        sample.build_id, credit.run_id, credit.rollout_id, credit.call_id, credit.level, credit.value, credit.token_values, false
    FROM (SELECT DISTINCT run_id, build_id FROM samples) AS sample
    LEFT JOIN (SELECT DISTINCT run_id, build_id FROM build_credit) AS named
        ON named.run_id = sample.run_id AND named.build_id = sample.build_id
    JOIN (
        SELECT run_id
        FROM (SELECT DISTINCT run_id, name, derivation_id FROM credits WHERE coalesce(quantity, 'advantage') = 'advantage')
        GROUP BY run_id HAVING count(*) = 1
    ) AS one ON one.run_id = sample.run_id
    JOIN credits AS credit ON credit.run_id = sample.run_id
    WHERE named.build_id IS NULL AND coalesce(credit.quantity, 'advantage') = 'advantage'
),
judged AS (
    SELECT build_id, run_id, bool_or(is_named) AS is_named FROM of_build GROUP BY build_id, run_id
),
of_rollout AS (
    SELECT build_id, run_id, rollout_id, min(value) AS value
    FROM of_build
    WHERE call_id IS NULL AND coalesce(level, 'rollout') = 'rollout'
    GROUP BY build_id, run_id, rollout_id
),
of_call AS (
    -- By number and not by group: what holds the first list of a group holds all lists that were read with it.
    SELECT build_id, run_id, call_id, value, token_values
    FROM (
        SELECT *, row_number() OVER (PARTITION BY build_id, run_id, call_id ORDER BY value) AS place
        FROM of_build
        WHERE call_id IS NOT NULL
    )
    WHERE place = 1
),
faults AS (
    SELECT
        run.run_id, run.step, run.build_id, run.epoch, run.micro_batch, run.rank, run.row_index, run.rollout_id, run.call_id,
        unnest(credit_faults(
            run.advantage, run.advantages, run.length, run.row_start, run.start, coalesce(of_call.value, of_rollout.value), of_call.token_values,
            coalesce(build.advantage_scale, 1.0)
        )) AS fault
    FROM trained_advantage AS run
    JOIN judged ON judged.run_id = run.run_id AND judged.build_id IS NOT DISTINCT FROM run.build_id
    LEFT JOIN of_rollout
        ON of_rollout.run_id = run.run_id AND of_rollout.build_id IS NOT DISTINCT FROM run.build_id
        AND of_rollout.rollout_id = run.rollout_id
    LEFT JOIN of_call
        ON of_call.run_id = run.run_id AND of_call.build_id IS NOT DISTINCT FROM run.build_id AND of_call.call_id = run.call_id
    LEFT JOIN (SELECT run_id, build_id, max(advantage_scale) AS advantage_scale FROM row_build GROUP BY run_id, build_id) AS build
        ON build.run_id = run.run_id AND build.build_id = run.build_id
    -- Where a build names no credit, a rollout without one is not proven to have none.
    WHERE run.rollout_id IS NOT NULL
        AND (judged.is_named OR of_rollout.rollout_id IS NOT NULL OR of_call.call_id IS NOT NULL)
)
SELECT
    run_id, step, rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index,
    fault['position'] AS position,
    'row' AS position_in,
    fault['length'] AS length,
    fault['expected'] AS expected,
    fault['observed'] AS observed,
    concat('rollout ', rollout_id, ': ', fault['message']) AS message
FROM faults
