-- @question Does the loss weight of each optimizer step add up to what the objective gives?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs builds.objective_unit, runs.objective_unit, builds.objective_constant, samples.loss_weights, builds.reported
-- @examined
--   SELECT run_id, count(*) AS examined FROM (
--     SELECT DISTINCT run_id, build_id, epoch, optimizer_step FROM row_weights WHERE tokens > 0
--   ) GROUP BY run_id
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'builds.objective_unit' AS missing,
--       'say what one unit of loss weight belongs to: token, row, rollout, group or constant' AS remedy
--   FROM (SELECT DISTINCT run_id, build_id FROM samples) AS sample
--   LEFT JOIN (SELECT DISTINCT run_id, build_id FROM row_build WHERE objective_unit IN ('token', 'row', 'rollout', 'group', 'constant')) AS declared
--     ON declared.run_id = sample.run_id AND declared.build_id = sample.build_id
--   LEFT JOIN (SELECT DISTINCT run_id FROM runs WHERE objective_unit IS NOT NULL) AS expected ON expected.run_id = sample.run_id
--   WHERE declared.build_id IS NULL AND expected.run_id IS NULL
-- @undeclared
--   SELECT run_id, build_id, 'builds.objective_constant' AS missing,
--       'say by which constant the summed loss was divided' AS remedy
--   FROM builds WHERE objective_unit = 'constant' AND objective_constant IS NULL GROUP BY run_id, build_id
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'samples.loss_weights' AS missing,
--       concat('keep the coefficient that each token''s loss got, or what the trainer divided by (builds.reported); ',
--         sample.rows, ' rows have none') AS remedy
--   FROM (
--     SELECT run_id, build_id, count(*) AS rows
--     FROM samples WHERE loss_weights IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
--   ) AS sample
--   LEFT JOIN (SELECT DISTINCT run_id, build_id FROM reported_count WHERE is_policy AND denominator > 0) AS reported
--     ON reported.run_id = sample.run_id AND reported.build_id = sample.build_id
--   WHERE reported.build_id IS NULL
WITH given AS (
    SELECT
        run_id, build_id, min(step) AS step, epoch, optimizer_step,
        sum(tokens) AS tokens, sum(weight) AS weight, count(DISTINCT rollout_id) AS rollouts,
        count(DISTINCT row_number) AS rows, bool_and(is_weighted) AS is_weighted, bool_and(is_finite) AS is_finite
    FROM row_weights
    GROUP BY run_id, build_id, epoch, optimizer_step
),
-- What the trainer divided by, where it did not keep the weights themselves.
counted AS (
    SELECT
        run_id, build_id, optimizer_step, sum(loss_tokens / denominator) AS weight, max(denominator) AS divisor,
        count(DISTINCT micro_batch) AS micro_batches, count(DISTINCT rank) AS ranks
    FROM reported_count
    WHERE is_policy AND denominator > 0
    GROUP BY run_id, build_id, optimizer_step
),
judged AS (
    SELECT
        given.run_id, given.build_id, given.step, given.epoch, given.optimizer_step, given.is_weighted,
        CASE WHEN build.objective_unit IS NOT NULL THEN 'violation' ELSE 'rule' END AS outcome,
        coalesce(build.objective_unit, run.objective_unit) AS unit,
        CASE coalesce(build.objective_unit, run.objective_unit)
            WHEN 'constant' THEN CAST(given.tokens AS DOUBLE) / build.objective_constant
            WHEN 'token' THEN 1.0
            WHEN 'row' THEN 1.0
            WHEN 'rollout' THEN 1.0
            WHEN 'group' THEN 1.0
        END AS expected,
        CASE WHEN given.is_weighted THEN given.weight ELSE counted.weight END AS observed,
        greatest(counted.micro_batches, 1) AS micro_batches,
        greatest(counted.ranks, 1) AS ranks
    FROM given
    LEFT JOIN (
        SELECT run_id, build_id, max(objective_unit) AS objective_unit, max(objective_constant) AS objective_constant
        FROM row_build GROUP BY run_id, build_id
    ) AS build ON build.run_id = given.run_id AND build.build_id = given.build_id
    LEFT JOIN (SELECT run_id, max(objective_unit) AS objective_unit FROM runs GROUP BY run_id) AS run ON run.run_id = given.run_id
    LEFT JOIN counted
        ON counted.run_id = given.run_id AND counted.build_id = given.build_id AND counted.optimizer_step IS NOT DISTINCT FROM given.optimizer_step
    -- Where a weight is no number there is no sum: pack/weight accuses its row.
    WHERE given.tokens > 0 AND given.is_finite
        -- What was divided by rollouts or rows is a sum of their means: how many tokens lie in it says nothing.
        AND NOT (
            coalesce(build.objective_unit, run.objective_unit) IN ('row', 'rollout', 'group') AND NOT given.is_weighted
            AND counted.divisor <= greatest(given.rollouts, given.rows)
        )
)
-- findings: what is above is the loss account's as well.
SELECT
    outcome, run_id, step, build_id,
    CAST(round(expected, 9) AS VARCHAR) AS expected,
    CAST(round(observed, 9) AS VARCHAR) AS observed,
    concat('the loss weights of optimizer step ', coalesce(CAST(optimizer_step AS VARCHAR), '?'), ' add up to ', round(observed, 9),
        ' where the objective ', unit, ' gives ', round(expected, 9), ': the learning rate is ', round(observed / expected, 6),
        ' of what was set') AS message
FROM judged
WHERE abs(observed - expected) > 1e-6 * greatest(expected, 1e-3)
    -- A trainer that averages over micro-batches or ranks divides once more than it reports.
    AND (is_weighted OR (
        abs(observed - expected * micro_batches) > 1e-6 * expected * micro_batches
        AND abs(observed - expected * ranks) > 1e-6 * expected * ranks
        AND abs(observed - expected * micro_batches * ranks) > 1e-6 * expected * micro_batches * ranks
    ))
