-- Calls with logprobs, and the coarser format or grid that their values show.
SELECT run_id, step, group_id, rollout_id, call_id, temperature, logprobs_dtype, items, seen, seen['kind'] AS format, seen['surprise'] AS surprise
FROM (
    SELECT
        run_id, step, group_id, rollout_id, call_id, temperature, logprobs_dtype, cardinality(output_logprobs) AS items,
        logprob_rounding(output_logprobs)[1] AS seen
    FROM calls
    WHERE output_logprobs IS NOT NULL
)
