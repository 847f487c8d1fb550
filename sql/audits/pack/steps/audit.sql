-- @question Are rows assigned to optimizer steps, micro-batches and ranks as the objective and the run want?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs samples.optimizer_step, samples.micro_batch, samples.rank, samples.epoch, builds.objective_unit, runs.expected_optimizer_steps
-- @examined
--   SELECT run_id, count(*) AS examined FROM (
--     SELECT DISTINCT run_id, build_id, epoch, step, optimizer_step FROM samples
--   ) GROUP BY run_id
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'runs.expected_optimizer_steps' AS missing,
--       concat('say how many optimizer steps a trainer step takes; step ', min(sample.step), ' of the build has ', max(sample.steps)) AS remedy
--   FROM (
--     SELECT run_id, build_id, epoch, step, count(DISTINCT optimizer_step) AS steps
--     FROM samples GROUP BY run_id, build_id, epoch, step
--   ) AS sample
--   LEFT JOIN (SELECT DISTINCT run_id FROM runs WHERE expected_optimizer_steps IS NOT NULL) AS declared ON declared.run_id = sample.run_id
--   WHERE sample.steps > 1 AND declared.run_id IS NULL
--   GROUP BY sample.run_id, sample.build_id
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'builds.objective_unit' AS missing,
--       'say what one unit of loss weight belongs to: a rollout in two optimizer steps is two units, unless the unit is a token' AS remedy
--   FROM (
--     SELECT run_id, build_id FROM samples GROUP BY run_id, build_id HAVING count(DISTINCT optimizer_step) > 1
--   ) AS sample
--   LEFT JOIN (SELECT DISTINCT run_id, build_id FROM row_build WHERE objective_unit IS NOT NULL) AS declared
--     ON declared.run_id = sample.run_id AND declared.build_id = sample.build_id
--   LEFT JOIN (SELECT DISTINCT run_id FROM runs WHERE objective_unit IS NOT NULL) AS expected ON expected.run_id = sample.run_id
--   WHERE declared.build_id IS NULL AND expected.run_id IS NULL
WITH placed AS (
    SELECT
        run_id, build_id, step, coalesce(epoch, 0) AS epoch, optimizer_step, micro_batch, rank
    FROM samples
),
-- A trainer step's own optimizer steps; where each has one, a step that was not imported is no gap.
spread AS (
    SELECT
        run_id, build_id, step, epoch, count(DISTINCT optimizer_step) AS steps,
        min(optimizer_step) AS first, max(optimizer_step) AS last
    FROM placed
    WHERE optimizer_step IS NOT NULL
    GROUP BY run_id, build_id, step, epoch
),
expected AS (
    SELECT run_id, max(expected_optimizer_steps) AS steps, max(objective_unit) AS unit FROM runs GROUP BY run_id
),
objective AS (
    SELECT run_id, build_id, max(objective_unit) AS unit FROM row_build GROUP BY run_id, build_id
),
torn AS (
    SELECT
        trained.run_id, trained.build_id, trained.step, trained.epoch, trained.rollout_id,
        count(DISTINCT trained.optimizer_step) AS steps, min(trained.optimizer_step) AS first, max(trained.optimizer_step) AS last
    FROM row_weights AS trained
    WHERE trained.tokens > 0 AND trained.rollout_id IS NOT NULL AND trained.step IS NOT NULL
    GROUP BY trained.run_id, trained.build_id, trained.step, trained.epoch, trained.rollout_id
    HAVING count(DISTINCT trained.optimizer_step) > 1
),
-- Where no two trainer steps share an optimizer step, later ones are trained later.
unordered AS (
    SELECT run_id, build_id, step, epoch, first, reached
    FROM (
        SELECT
            spread.*,
            max(last) OVER (
                PARTITION BY run_id, build_id, epoch ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS reached
        FROM spread WHERE step IS NOT NULL
    ) AS ordered
    WHERE first < reached
),
own_steps AS (
    SELECT run_id, build_id, epoch
    FROM (
        SELECT run_id, build_id, epoch, optimizer_step, count(DISTINCT step) AS steps
        FROM placed WHERE optimizer_step IS NOT NULL AND step IS NOT NULL GROUP BY run_id, build_id, epoch, optimizer_step
    )
    GROUP BY run_id, build_id, epoch HAVING max(steps) = 1
),
on_rank AS (
    SELECT run_id, build_id, min(step) AS step, epoch, coalesce(optimizer_step, step) AS optimizer_step, rank, count(DISTINCT micro_batch) AS micro_batches
    FROM placed
    WHERE rank IS NOT NULL AND micro_batch IS NOT NULL
    GROUP BY run_id, build_id, epoch, coalesce(optimizer_step, step), rank
),
uneven AS (
    SELECT
        run_id, build_id, min(step) AS step, epoch, optimizer_step, max(micro_batches) AS most, min(micro_batches) AS least,
        min(rank) FILTER (WHERE micro_batches < most) AS rank
    FROM (
        SELECT *, max(micro_batches) OVER (PARTITION BY run_id, build_id, epoch, optimizer_step) AS most FROM on_rank
    )
    GROUP BY run_id, build_id, epoch, optimizer_step
    HAVING max(micro_batches) > min(micro_batches)
)
SELECT
    'violation' AS outcome, torn.run_id, torn.step, torn.rollout_id, torn.build_id,
    '1' AS expected, CAST(torn.steps AS VARCHAR) AS observed,
    concat('rollout ', torn.rollout_id, ' trains in ', torn.steps, ' optimizer steps of step ', torn.step, ' (', torn.first, ' to ', torn.last,
        '): the objective ', coalesce(objective.unit, expected.unit), ' gives it a whole share in each') AS message
FROM torn
LEFT JOIN objective ON objective.run_id = torn.run_id AND objective.build_id = torn.build_id
LEFT JOIN expected ON expected.run_id = torn.run_id
WHERE coalesce(objective.unit, expected.unit) IN ('rollout', 'group')
UNION ALL
SELECT
    'rule', spread.run_id, spread.step, NULL, spread.build_id,
    CAST(expected.steps AS VARCHAR), CAST(spread.steps AS VARCHAR),
    concat('step ', coalesce(CAST(spread.step AS VARCHAR), '?'), ' takes ', spread.steps, ' optimizer steps where the run declares ', expected.steps,
        ': mini-batches are counted in rows')
FROM spread
JOIN expected ON expected.run_id = spread.run_id
WHERE spread.steps <> expected.steps
UNION ALL
SELECT
    'violation', run_id, step, NULL, build_id,
    CAST(last - first + 1 AS VARCHAR), CAST(steps AS VARCHAR),
    concat('step ', coalesce(CAST(step AS VARCHAR), '?'), ' has rows of ', steps, ' optimizer steps from ', first, ' to ', last, ': ', last - first + 1 - steps,
        ' of them trained nothing, or were lost')
FROM spread
WHERE steps > 1 AND steps < last - first + 1
UNION ALL
SELECT
    'violation', run_id, step, NULL, build_id,
    CAST(most AS VARCHAR), CAST(least AS VARCHAR),
    concat('optimizer step ', coalesce(CAST(optimizer_step AS VARCHAR), '?'), ' has ', most, ' micro-batches on one rank and ', least, ' on rank ', rank,
        ': a rank waits, or averages over another number')
FROM uneven
UNION ALL
SELECT
    'violation', unordered.run_id, unordered.step, NULL, unordered.build_id, concat('an optimizer step after ', unordered.reached),
    CAST(unordered.first AS VARCHAR),
    concat('step ', unordered.step, ' is trained by optimizer step ', unordered.first, ', and an earlier step by optimizer step ',
        unordered.reached, ': steps were trained out of order')
FROM unordered
JOIN own_steps
    ON own_steps.run_id = unordered.run_id AND own_steps.build_id IS NOT DISTINCT FROM unordered.build_id
    AND own_steps.epoch = unordered.epoch
