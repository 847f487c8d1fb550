-- @question Is every token of an optimizer step divided by the denominator that the objective names?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs builds.objective_unit, builds.objective_scope, builds.reported, samples.micro_batch, samples.rank, samples.loss_weights
-- @examined
--   SELECT run_id, count(*) AS examined FROM (
--     SELECT DISTINCT run_id, build_id, epoch, optimizer_step, micro_batch, rank FROM row_weights WHERE tokens > 0
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
--   SELECT sample.run_id, sample.build_id, 'builds.reported' AS missing,
--       concat('keep what the trainer counted and divided by in each micro-batch, or the coefficient of each token (samples.loss_weights); ',
--         sample.rows, ' rows have neither') AS remedy
--   FROM (
--     SELECT run_id, build_id, count(*) AS rows
--     FROM samples WHERE loss_weights IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
--   ) AS sample
--   LEFT JOIN (SELECT DISTINCT run_id, build_id FROM reported_count WHERE is_policy) AS reported
--     ON reported.run_id = sample.run_id AND reported.build_id = sample.build_id
--   WHERE reported.build_id IS NULL

-- One micro-batch on one rank.
WITH part AS (
    SELECT
        run_id, build_id, min(step) AS step, epoch, optimizer_step, micro_batch, rank,
        sum(tokens) AS tokens, sum(weight) AS weight, count(DISTINCT row_number) FILTER (WHERE tokens > 0) AS rows,
        bool_and(is_weighted AND is_finite) AS is_weighted
    FROM row_weights
    GROUP BY run_id, build_id, epoch, optimizer_step, micro_batch, rank
),
of_rollout AS (
    SELECT run_id, build_id, epoch, optimizer_step, count(*) AS rollouts, min(tokens) AS least, max(tokens) AS most
    FROM (
        SELECT run_id, build_id, epoch, optimizer_step, rollout_id, sum(tokens) AS tokens
        FROM row_weights
        WHERE rollout_id IS NOT NULL
        GROUP BY run_id, build_id, epoch, optimizer_step, rollout_id
    )
    WHERE tokens > 0
    GROUP BY run_id, build_id, epoch, optimizer_step
),
declared AS (
    SELECT
        given.run_id, given.build_id,
        CASE WHEN build.objective_unit IS NOT NULL THEN 'violation' ELSE 'rule' END AS outcome,
        coalesce(build.objective_unit, run.objective_unit) AS unit,
        CASE WHEN build.objective_unit IS NOT NULL THEN coalesce(build.objective_scope, 'step') ELSE coalesce(run.objective_scope, 'step') END AS scope,
        build.objective_unit AS build_unit,
        run.objective_unit AS run_unit, coalesce(run.objective_scope, 'step') AS run_scope,
        build.objective_constant AS constant
    FROM (SELECT DISTINCT run_id, build_id FROM row_weights) AS given
    LEFT JOIN (
        SELECT
            run_id, build_id, max(objective_unit) AS objective_unit, max(objective_scope) AS objective_scope,
            max(objective_constant) AS objective_constant
        FROM row_build GROUP BY run_id, build_id
    ) AS build ON build.run_id = given.run_id AND build.build_id = given.build_id
    LEFT JOIN (
        SELECT run_id, max(objective_unit) AS objective_unit, max(objective_scope) AS objective_scope FROM runs GROUP BY run_id
    ) AS run ON run.run_id = given.run_id
),
whole AS (
    SELECT
        run_id, build_id, epoch, optimizer_step, sum(tokens) AS step_tokens, sum(weight) AS step_weight, sum(rows) AS step_rows,
        bool_and(is_weighted) AS is_known, count(*) AS parts, count(DISTINCT rank) AS ranks
    FROM part
    WHERE tokens > 0
    GROUP BY run_id, build_id, epoch, optimizer_step
),
in_step AS (
    SELECT
        part.*, declared.outcome, declared.unit, declared.scope, declared.build_unit, declared.run_unit, declared.run_scope,
        declared.constant, coalesce(of_rollout.rollouts, 0) AS rollouts, of_rollout.least = of_rollout.most AS is_even,
        whole.step_tokens, whole.step_weight, whole.step_rows, whole.is_known, whole.parts, whole.ranks,
        sum(part.tokens) OVER (PARTITION BY part.run_id, part.build_id, part.epoch, part.optimizer_step, part.rank) AS rank_tokens
    FROM part
    JOIN declared ON declared.run_id = part.run_id AND declared.build_id IS NOT DISTINCT FROM part.build_id
    JOIN whole
        ON whole.run_id = part.run_id AND whole.build_id IS NOT DISTINCT FROM part.build_id
        AND whole.epoch = part.epoch AND whole.optimizer_step IS NOT DISTINCT FROM part.optimizer_step
    LEFT JOIN of_rollout
        ON of_rollout.run_id = part.run_id AND of_rollout.build_id IS NOT DISTINCT FROM part.build_id
        AND of_rollout.epoch = part.epoch AND of_rollout.optimizer_step IS NOT DISTINCT FROM part.optimizer_step
),
-- What a trainer reports is of a micro-batch on a rank, of a rank, or of the whole step.
reported AS (
    SELECT
        count.build_id, count.optimizer_step, count.micro_batch, count.rank, count.term, count.loss_tokens, count.denominator,
        count.run_id, min(part.step) AS step, part.epoch,
        min(part.outcome) AS outcome, min(part.unit) AS unit, min(part.scope) AS scope, min(part.constant) AS constant,
        sum(part.tokens) AS tokens, sum(part.weight) AS weight, bool_and(part.is_known) AS is_known,
        min(part.step_tokens) AS step_tokens, min(part.step_rows) AS step_rows, min(part.step_weight) AS step_weight,
        min(part.rank_tokens) AS rank_tokens, min(part.rollouts) AS rollouts, bool_and(coalesce(part.is_even, false)) AS is_even
    FROM (SELECT * FROM reported_count WHERE is_policy) AS count
    JOIN in_step AS part
        ON part.run_id = count.run_id AND part.build_id = count.build_id
        AND (count.optimizer_step IS NULL OR count.optimizer_step = part.optimizer_step)
        AND (count.micro_batch IS NULL OR count.micro_batch = part.micro_batch)
        AND (count.rank IS NULL OR count.rank = part.rank)
    GROUP BY
        count.run_id, count.build_id, count.optimizer_step, count.micro_batch, count.rank, count.term, count.loss_tokens, count.denominator,
        part.epoch
),
expected AS (
    SELECT
        *,
        CASE
            WHEN unit = 'constant' THEN constant
            WHEN unit = 'token' AND scope = 'micro_batch' THEN CAST(tokens AS DOUBLE)
            WHEN unit = 'token' AND scope = 'rank' THEN CAST(rank_tokens AS DOUBLE)
            WHEN unit = 'token' THEN CAST(step_tokens AS DOUBLE)
            WHEN unit = 'row' AND scope = 'step' THEN CAST(step_rows AS DOUBLE)
            -- Where every rollout has as many tokens, a mean over rollouts divides each token by all of them.
            WHEN unit = 'rollout' AND is_even THEN CAST(step_tokens AS DOUBLE)
            WHEN unit = 'rollout' THEN CAST(rollouts AS DOUBLE)
        END AS wanted
    FROM reported
    WHERE denominator IS NOT NULL
),
told AS (
    SELECT
        run_id, build_id, epoch, optimizer_step,
        greatest(count(DISTINCT micro_batch), 1) AS micro_batches, greatest(count(DISTINCT rank), 1) AS ranks
    FROM expected
    GROUP BY run_id, build_id, epoch, optimizer_step
),
fitted AS (
    -- Ranks and micro-batches may be averaged afterwards: then all report the same part of the denominator.
    SELECT
        expected.*,
        bool_and(abs(denominator - wanted) <= 1e-6 * wanted) OVER of_step AS fits,
        bool_and(abs(denominator * micro_batches - wanted) <= 1e-6 * wanted) OVER of_step AS fits_micro_batches,
        bool_and(abs(denominator * ranks - wanted) <= 1e-6 * wanted) OVER of_step AS fits_ranks,
        bool_and(abs(denominator * micro_batches * ranks - wanted) <= 1e-6 * wanted) OVER of_step AS fits_both,
        bool_and(abs(denominator - wanted * micro_batches * ranks) <= 1e-6 * wanted * micro_batches * ranks) OVER of_step AS fits_mean,
        bool_and(abs(denominator - rollouts) <= 1e-6) OVER of_step AS fits_rollouts
    FROM expected
    JOIN told
        ON told.run_id = expected.run_id AND told.build_id = expected.build_id AND told.epoch = expected.epoch
        AND told.optimizer_step IS NOT DISTINCT FROM expected.optimizer_step
    WHERE wanted > 0
    WINDOW of_step AS (PARTITION BY expected.run_id, expected.build_id, expected.epoch, expected.optimizer_step)
)
SELECT
    outcome, run_id, step, build_id,
    CAST(tokens AS VARCHAR) AS expected,
    CAST(loss_tokens AS VARCHAR) AS observed,
    concat('the trainer counted ', loss_tokens, ' loss tokens in ', place, ' where its rows train ', tokens) AS message
FROM (
    SELECT
        *,
        concat_ws(', ', concat('optimizer step ', optimizer_step), 'micro-batch ' || CAST(micro_batch AS VARCHAR),
            'rank ' || CAST(rank AS VARCHAR)) AS place
    FROM reported
)
WHERE loss_tokens <> tokens
UNION ALL
SELECT
    outcome, run_id, step, build_id,
    CAST(round(wanted, 9) AS VARCHAR), CAST(round(denominator, 9) AS VARCHAR),
    concat('the trainer divided by ', round(denominator, 9), ' in ', place, ' where the objective ', unit, ' over each ', scope,
        ' divides by ', round(wanted, 9))
FROM (
    SELECT
        *,
        concat_ws(', ', concat('optimizer step ', optimizer_step), 'micro-batch ' || CAST(micro_batch AS VARCHAR),
            'rank ' || CAST(rank AS VARCHAR)) AS place
    FROM fitted
)
WHERE NOT (fits OR fits_micro_batches OR fits_ranks OR fits_both OR (scope <> 'step' AND fits_mean))
    AND abs(denominator - wanted) > 1e-6 * wanted
    -- Of other units a denominator is no more than a part of the coefficient, which the weights tell where they are kept.
    AND (unit IN ('token', 'constant')
        OR (is_known AND abs(step_weight - 1) > 1e-6 AND abs(weight * denominator - tokens) <= 1e-6 * tokens)
        -- The weights add up to what so many units divided by this denominator give.
        OR (is_known AND abs(step_weight - 1) > 1e-6 AND abs(step_weight * denominator - wanted) <= 1e-6 * wanted)
        OR (NOT is_known AND NOT fits_rollouts))
UNION ALL
-- Under a mean over all tokens one coefficient holds in every part.
SELECT
    outcome, run_id, step, build_id,
    CAST(round(step_weight / step_tokens, 9) AS VARCHAR), CAST(round(weight / tokens, 9) AS VARCHAR),
    concat('each of the ', tokens, ' tokens of optimizer step ', coalesce(CAST(optimizer_step AS VARCHAR), '?'), ', micro-batch ', micro_batch,
        ', rank ', rank, ' weighs ', round(weight / tokens, 9), ' on average where the step''s ', step_tokens, ' tokens weigh ',
        round(step_weight / step_tokens, 9), ': parts of unequal size were averaged')
FROM in_step
WHERE is_known AND unit = 'token' AND scope = 'step' AND parts > 1 AND tokens > 0
    AND abs(weight / tokens - step_weight / step_tokens) > 1e-6 * abs(step_weight / step_tokens)
UNION ALL
-- The build's own objective may divide by less than the run declares; weights that are one all over the step do not follow it.
SELECT
    'rule', run_id, step, build_id,
    CAST(step_tokens AS VARCHAR), CAST(own_tokens AS VARCHAR),
    concat('the build divides by the ', own_tokens, ' tokens of each ', scope, ' where the run''s objective divides by the ', step_tokens,
        ' of optimizer step ', coalesce(CAST(optimizer_step AS VARCHAR), '?'))
FROM (
    SELECT
        *, CASE scope WHEN 'micro_batch' THEN tokens WHEN 'rank' THEN rank_tokens END AS own_tokens
    FROM in_step
    WHERE (NOT is_known OR abs(weight / tokens - step_weight / step_tokens) > 1e-6 * abs(step_weight / step_tokens))
        AND build_unit = 'token' AND run_unit = 'token' AND run_scope = 'step' AND scope <> 'step' AND tokens > 0
)
-- The terms of equal parts average to the same.
WHERE own_tokens * (CASE scope WHEN 'rank' THEN ranks ELSE parts END) <> step_tokens
