-- @question Does every sampled token have a logprob that a probability can have?
-- @layer policy
-- @severity error
-- @version 1
-- @outcome violation
-- @needs calls.output_logprobs, calls.sampled_mask
-- @examined
--   SELECT run_id, sum(output_len) AS examined
--   FROM calls WHERE output_logprobs IS NOT NULL AND output_len IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_logprobs' AS missing,
--       concat('ask the engine for the sampled tokens'' logprobs; ', count(*), ' trainable calls have none') AS remedy
--   FROM calls
--   WHERE output_logprobs IS NULL AND (output_len IS NULL OR output_len > 0)
--     AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
--   GROUP BY run_id
WITH faults AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id,
        unnest(logprob_faults(output_len, sampled_mask, output_logprobs)) AS fault
    FROM calls
    WHERE output_logprobs IS NOT NULL AND output_len IS NOT NULL
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    fault['position'] AS position,
    'output' AS position_in,
    fault['length'] AS length,
    'a finite number of at most 0' AS expected,
    fault['observed'] AS observed,
    concat(fault['length'], ' sampled tokens from output token ', fault['position'], ' on have the logprob ',
        fault['observed']) AS message
FROM faults
