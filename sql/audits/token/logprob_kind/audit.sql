-- @question Are the rollout logprobs of the distribution that sampled, and of the one that the run and the trainer mean?
-- @layer policy
-- @severity error
-- @version 2
-- @outcome violation
-- @needs calls.logprobs_mode, calls.logprobs_source, calls.temperature, calls.top_p, calls.top_k, runs.logprobs_mode,
--   builds.logprobs_mode
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls
--   WHERE output_logprobs IS NOT NULL AND coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other')) GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.logprobs_mode' AS missing,
--       concat('say whether logprobs are raw, after temperature or after all processing; ', count(*), ' calls do not') AS remedy
--   FROM calls
--   WHERE output_logprobs IS NOT NULL AND coalesce(logprobs_mode, 'unknown') = 'unknown'
--     AND coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other'))
--   GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.temperature' AS missing,
--       concat('record the sampling temperature; ', count(*), ' calls with raw logprobs do not') AS remedy
--   FROM calls
--   WHERE output_logprobs IS NOT NULL AND logprobs_mode = 'raw' AND temperature IS NULL
--     AND coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other'))
--   GROUP BY run_id
-- @undeclared
--   SELECT call.run_id, 'runs.logprobs_mode' AS missing,
--       'declare of which distribution the rollout logprobs must be: raw, temperature, processed or constrained' AS remedy
--   FROM (SELECT DISTINCT run_id FROM calls WHERE output_logprobs IS NOT NULL) AS call
--   LEFT ANTI JOIN (SELECT run_id FROM runs WHERE logprobs_mode IS NOT NULL) AS run ON run.run_id = call.run_id
WITH given AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, logprobs_source, temperature,
        nullif(logprobs_mode, 'unknown') AS mode,
        coalesce(top_p < 1, false) OR coalesce(top_k > 0, false) OR coalesce(TRY_CAST(sampling ->> 'min_p' AS DOUBLE) > 0, false)
            OR coalesce(TRY_CAST(sampling ->> 'typical_p' AS DOUBLE) < 1, false)
            OR coalesce(TRY_CAST(sampling ->> 'repetition_penalty' AS DOUBLE) <> 1, false)
            OR coalesce(TRY_CAST(sampling ->> 'frequency_penalty' AS DOUBLE) <> 0, false)
            OR coalesce(TRY_CAST(sampling ->> 'presence_penalty' AS DOUBLE) <> 0, false)
            OR coalesce(json_length(sampling, 'logit_bias'), 0) > 0
            AS is_filtered,
        -- Under these parameters the names mean one distribution.
        coalesce(temperature = 1, false) AS is_untempered
    FROM calls
    WHERE output_logprobs IS NOT NULL AND coalesce(is_trainable, coalesce(kind, 'act') NOT IN ('judge', 'other'))
),
meant AS (
    SELECT run_id, max(logprobs_mode) AS mode FROM runs GROUP BY run_id
),
eval AS (
    SELECT DISTINCT run_id, rollout_id FROM rollouts WHERE coalesce(purpose, 'train') <> 'train'
),
trained AS (
    SELECT span.run_id, span.call_id, min(span.build_id) AS build_id, max(build.logprobs_mode) AS mode
    FROM (SELECT DISTINCT run_id, build_id, call_id FROM trained_span) AS span
    LEFT JOIN (SELECT run_id, build_id, max(logprobs_mode) AS logprobs_mode FROM row_build GROUP BY run_id, build_id) AS build
        ON build.run_id = span.run_id AND build.build_id = span.build_id
    GROUP BY span.run_id, span.call_id
),
joined AS (
    SELECT
        given.*, meant.mode AS run_mode, trained.build_id, trained.mode AS build_mode, trained.call_id IS NOT NULL AS is_trained
    FROM given
    LEFT JOIN meant ON meant.run_id = given.run_id
    LEFT JOIN trained ON trained.run_id = given.run_id AND trained.call_id = given.call_id
    LEFT ANTI JOIN eval ON eval.run_id = given.run_id AND eval.rollout_id = given.rollout_id
),
reduced AS (
    SELECT
        *,
        CASE
            WHEN mode = 'processed' AND is_filtered THEN 'processed'
            WHEN mode IN ('processed', 'temperature') THEN CASE WHEN is_untempered THEN 'raw' ELSE 'temperature' END
            ELSE mode
        END AS own,
        CASE
            WHEN run_mode = 'processed' AND is_filtered THEN 'processed'
            WHEN run_mode IN ('processed', 'temperature') THEN CASE WHEN is_untempered THEN 'raw' ELSE 'temperature' END
            ELSE run_mode
        END AS wanted,
        CASE
            WHEN build_mode = 'processed' AND is_filtered THEN 'processed'
            WHEN build_mode IN ('processed', 'temperature') THEN CASE WHEN is_untempered THEN 'raw' ELSE 'temperature' END
            ELSE build_mode
        END AS of_trainer
    FROM joined
),
judged AS (
    SELECT
        *,
        CASE
            WHEN logprobs_source = 'rescored' AND (is_trained OR run_mode IS NOT NULL) THEN 'rescored'
            WHEN own <> wanted THEN 'run'
            WHEN own <> of_trainer THEN 'trainer'
            WHEN own = 'raw' AND temperature NOT IN (0, 1) THEN 'temperature'
            WHEN own IN ('raw', 'temperature') AND is_filtered AND coalesce(temperature, 1) <> 0 THEN 'filter'
        END AS fault
    FROM reduced
)
SELECT
    CASE WHEN fault = 'run' OR (fault = 'rescored' AND NOT is_trained) THEN 'rule' ELSE 'violation' END AS outcome,
    run_id, step, group_id, rollout_id, call_id,
    CASE WHEN fault IN ('trainer', 'rescored') THEN build_id END AS build_id,
    CASE fault
        WHEN 'rescored' THEN 'logprobs of the sampler'
        WHEN 'run' THEN run_mode
        WHEN 'trainer' THEN build_mode
        ELSE 'logprobs of the distribution that sampled'
    END AS expected,
    CASE fault
        WHEN 'rescored' THEN 'rescored'
        WHEN 'temperature' THEN concat(mode, ' at temperature ', temperature)
        WHEN 'filter' THEN concat(mode, ' under a filter, a penalty or a bias')
        ELSE mode
    END AS observed,
    CASE fault
        WHEN 'rescored' THEN concat('the logprobs of ', call_id, ' were computed afterwards: they are no rollout logprobs')
        WHEN 'run' THEN concat('the logprobs of ', call_id, ' are ', mode, ' where the run declares ', run_mode)
        WHEN 'trainer' THEN concat('the logprobs of ', call_id, ' are ', mode, ' where those of the build''s trainer are ', build_mode)
        WHEN 'temperature' THEN
            concat('the logprobs of ', call_id, ' are raw, but it was sampled at temperature ', temperature,
                ': they are not of the distribution that sampled')
        ELSE
            concat('the logprobs of ', call_id, ' are ', mode, ', but a filter (top_p, top_k, min_p, typical_p), a penalty or a bias made the distribution that sampled another')
    END AS message
FROM judged
WHERE fault IS NOT NULL
