-- @question Have the logprobs the precision of a float?
-- @layer policy
-- @severity warning
-- @version 1
-- @outcome violation
-- @needs calls.output_logprobs, calls.logprobs_dtype, samples.logprobs
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls WHERE output_logprobs IS NOT NULL AND output_len > 0 GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_logprobs' AS missing,
--       concat('ask the engine for the sampled tokens'' logprobs; ', count(*), ' trainable calls have none') AS remedy
--   FROM calls
--   WHERE output_logprobs IS NULL AND (output_len IS NULL OR output_len > 0)
--     AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
--   GROUP BY run_id
WITH shown AS (
    SELECT *, coalesce(lower(logprobs_dtype) IN ('bfloat16', 'bf16', 'float16', 'fp16', 'half'), false) AS is_declared
    FROM logprob_format
),
-- Where all calls of a run show one format, their surprises add up.
pooled AS (
    SELECT run_id
    FROM shown
    WHERE items > 0 AND (format IS NULL OR format <> 'zeros')
    GROUP BY run_id
    HAVING count(*) = count(format) AND min(format) = max(format) AND sum(CAST(surprise AS BIGINT)) >= 12
),
judged AS (
    SELECT shown.*
    FROM shown
    LEFT JOIN pooled ON pooled.run_id = shown.run_id
    WHERE is_declared
        OR (format = 'zeros' AND temperature IS DISTINCT FROM 0)
        OR (format <> 'zeros' AND (surprise >= 24 OR pooled.run_id IS NOT NULL))
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    coalesce(seen['position'], 0) AS position,
    'output' AS position_in,
    coalesce(seen['length'], items) AS length,
    'float32' AS expected,
    coalesce(format, logprobs_dtype) AS observed,
    CASE
        WHEN format = 'zeros' THEN concat('all ', items, ' logprobs of ', call_id, ' are exactly 0: they were filled in')
        WHEN format IS NULL THEN concat('the logprobs of ', call_id, ' were kept as ', logprobs_dtype)
        ELSE
            concat('the logprobs of ', call_id, ' were rounded to ', format, ', as ', seen['observed'], ' at output token ',
                seen['position'], ' shows')
    END AS message
FROM judged
UNION ALL
SELECT
    run_id, step, NULL, rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index, position, 'row', length, expected, observed,
    concat('the row has the logprobs of ', call_id, ' rounded, from row token ', position, ' on: ', observed, ' for ', expected)
FROM row_output_faults
WHERE kind = 'rounded'
