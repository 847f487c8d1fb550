-- @question Are the metrics that a trainer logged those of the rows it trained?
-- @layer sample
-- @severity warning
-- @version 2
-- @outcome violation
-- @scope build
-- @needs step_metrics.value, samples.step, samples.action_mask, samples.trainer_logprobs, samples.reference_logprobs, builds.kl_estimator
-- @examined
--   SELECT run_id, count(*) AS examined FROM step_metrics
--   WHERE regexp_replace(lower(name), '^.*/', '') IN (
--     'kl', 'kl_mean', 'mean_kl', 'kl_sum', 'sum_kl', 'ref_kl', 'kl_ref', 'reference_kl',
--     'loss_tokens', 'num_loss_tokens', 'trained_tokens', 'num_trained_tokens', 'action_tokens', 'num_action_tokens'
--   ) GROUP BY run_id
-- @undeclared
--   SELECT metric.run_id, 'samples.reference_logprobs' AS missing,
--       'keep the logprobs of trainer and reference model, from which the logged KL can be computed' AS remedy
--   FROM (
--     SELECT DISTINCT run_id FROM step_metrics
--     WHERE regexp_replace(lower(name), '^.*/', '') IN ('kl', 'kl_mean', 'mean_kl', 'kl_sum', 'sum_kl', 'ref_kl', 'kl_ref', 'reference_kl')
--   ) AS metric
--   JOIN (SELECT DISTINCT run_id FROM samples) AS sample ON sample.run_id = metric.run_id
--   LEFT JOIN (SELECT DISTINCT run_id FROM samples WHERE reference_logprobs IS NOT NULL AND trainer_logprobs IS NOT NULL) AS kept
--     ON kept.run_id = metric.run_id
--   WHERE kept.run_id IS NULL
-- @undeclared
--   SELECT metric.run_id, 'samples.step' AS missing, 'say which trainer step trained each row' AS remedy
--   FROM (SELECT DISTINCT run_id FROM step_metrics) AS metric
--   JOIN (SELECT run_id FROM samples GROUP BY run_id HAVING count(step) = 0) AS sample ON sample.run_id = metric.run_id
WITH metric AS (
    SELECT run_id, step, name, regexp_replace(lower(name), '^.*/', '') AS kind, value
    FROM step_metrics
    WHERE value IS NOT NULL AND step IS NOT NULL
),
-- Tokens that trained, of one epoch or of all.
trained AS (
    SELECT run_id, build_id, step, tokens FROM (
        SELECT run_id, build_id, step, epoch, sum(tokens) AS tokens FROM row_weights GROUP BY run_id, build_id, step, epoch
    )
    UNION
    SELECT run_id, build_id, step, sum(tokens) FROM row_weights GROUP BY run_id, build_id, step
),
counted AS (
    SELECT
        metric.run_id, metric.step, metric.name, metric.value, min(trained.build_id) AS build_id, min(trained.tokens) AS tokens,
        bool_or(metric.value = trained.tokens) AS is_right
    FROM metric
    JOIN trained ON trained.run_id = metric.run_id AND trained.step = metric.step
    WHERE metric.kind IN (
        'loss_tokens', 'num_loss_tokens', 'trained_tokens', 'num_trained_tokens', 'action_tokens', 'num_action_tokens'
    )
    GROUP BY metric.run_id, metric.step, metric.name, metric.value
),
-- The distance from the reference of each row: over the tokens that train, and over all that it has.
of_row AS (
    SELECT run_id, build_id, step, kl_sums(row_mask(action_mask, mask_convention), trainer_logprobs, reference_logprobs) AS sums
    FROM samples
    WHERE trainer_logprobs IS NOT NULL AND reference_logprobs IS NOT NULL AND action_mask IS NOT NULL AND step IS NOT NULL
),
of_step AS (
    SELECT run_id, build_id, step, estimator, is_masked, sum(value) AS total, sum(tokens) AS tokens, avg(value / tokens) AS row_mean, avg(value) AS row_sum
    FROM (
        SELECT run_id, build_id, step, 'k1' AS estimator, true AS is_masked, sums['k1'] AS value, sums['tokens'] AS tokens FROM of_row
        UNION ALL SELECT run_id, build_id, step, 'k2', true, sums['k2'], sums['tokens'] FROM of_row
        UNION ALL SELECT run_id, build_id, step, 'k3', true, sums['k3'], sums['tokens'] FROM of_row
        UNION ALL SELECT run_id, build_id, step, 'k1', false, sums['all_k1'], sums['all_tokens'] FROM of_row
        UNION ALL SELECT run_id, build_id, step, 'k2', false, sums['all_k2'], sums['all_tokens'] FROM of_row
        UNION ALL SELECT run_id, build_id, step, 'k3', false, sums['all_k3'], sums['all_tokens'] FROM of_row
    )
    WHERE tokens > 0
    GROUP BY run_id, build_id, step, estimator, is_masked
),
candidate AS (
    SELECT run_id, build_id, step, estimator, is_masked, total / tokens AS mean, total, row_mean, row_sum FROM of_step
),
-- Logged with few digits: a thousandth is equal. Where no estimator is declared, the sides may be named the other way round.
compared AS (
    SELECT
        metric.run_id, metric.step, metric.name, metric.kind, metric.value, candidate.build_id, candidate.estimator, candidate.is_masked,
        candidate.mean, candidate.total, build.kl_estimator,
        least(abs(metric.value - candidate.mean), CASE WHEN build.kl_estimator IS NULL THEN abs(metric.value + candidate.mean) END)
            <= 1e-6 + 1e-3 * abs(candidate.mean)
            OR least(abs(metric.value - candidate.total), CASE WHEN build.kl_estimator IS NULL THEN abs(metric.value + candidate.total) END)
            <= 1e-6 + 1e-3 * abs(candidate.total)
            OR least(abs(metric.value - candidate.row_mean), CASE WHEN build.kl_estimator IS NULL THEN abs(metric.value + candidate.row_mean) END)
            <= 1e-6 + 1e-3 * abs(candidate.row_mean)
            OR least(abs(metric.value - candidate.row_sum), CASE WHEN build.kl_estimator IS NULL THEN abs(metric.value + candidate.row_sum) END)
            <= 1e-6 + 1e-3 * abs(candidate.row_sum) AS fits
    FROM metric
    JOIN candidate ON candidate.run_id = metric.run_id AND candidate.step = metric.step
    LEFT JOIN (SELECT run_id, build_id, max(kl_estimator) AS kl_estimator FROM row_build GROUP BY run_id, build_id) AS build
        ON build.run_id = candidate.run_id AND build.build_id = candidate.build_id
    WHERE metric.kind IN ('kl', 'kl_mean', 'mean_kl', 'kl_sum', 'sum_kl', 'ref_kl', 'kl_ref', 'reference_kl')
        AND (build.kl_estimator IS NULL OR build.kl_estimator NOT IN ('k1', 'k2', 'k3') OR build.kl_estimator = candidate.estimator)
),
kl AS (
    SELECT
        run_id, step, name, kind, value, min(build_id) AS build_id,
        bool_or(fits AND is_masked) AS is_right,
        bool_or(fits AND NOT is_masked) AS is_of_all,
        bool_and(coalesce(kl_estimator, '') IN ('k1', 'k2', 'k3')) AS is_declared,
        min(CASE WHEN is_masked AND estimator = coalesce(kl_estimator, 'k1') THEN mean END) AS mean,
        min(CASE WHEN is_masked AND estimator = coalesce(kl_estimator, 'k1') THEN total END) AS total
    FROM compared
    GROUP BY run_id, step, name, kind, value
)
SELECT
    run_id, step, build_id,
    CAST(tokens AS VARCHAR) AS expected, CAST(value AS VARCHAR) AS observed,
    concat('step ', step, ': the metric ', name, ' is ', value, ' where the rows train ', tokens, ' tokens') AS message
FROM counted
WHERE NOT is_right
UNION ALL
SELECT
    run_id, step, build_id,
    CAST(round(CASE WHEN kind LIKE '%sum%' OR abs(value - total) < abs(value - mean) THEN total ELSE mean END, 6) AS VARCHAR),
    CAST(round(value, 6) AS VARCHAR),
    concat('step ', step, ': the metric ', name, ' is ', round(value, 6), CASE WHEN is_of_all THEN ', as over all tokens of the rows,' ELSE '' END,
        ' where the tokens that train give the sum ', round(total, 6), ' and the mean ', round(mean, 6))
FROM kl
-- Another estimator than the three would fit none of these: only what is declared, or fits what does not train, is accused.
WHERE NOT is_right AND (is_of_all OR is_declared)
