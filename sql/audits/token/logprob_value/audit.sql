-- @question Does every sampled token have a logprob that a probability can have?
-- @layer policy
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs calls.output_logprobs, calls.sampled_mask, samples.logprobs, samples.segments
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
),
-- What trained with a row's own logprobs.
row_run AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, row_index, true AS is_traced,
        unnest(trained_advantages(segments, row_mask(action_mask, mask_convention), logprobs)) AS run
    FROM samples
    WHERE logprobs IS NOT NULL AND segments IS NOT NULL AND NOT coalesce(is_pad, false)
    UNION ALL
    SELECT
        run_id, step, group_id, rollout_id, build_id, row_index, false,
        unnest(trained_advantages(
            [named_struct('start', 0, 'length', cardinality(logprobs), 'trained', true)], row_mask(action_mask, mask_convention), logprobs
        ))
    FROM samples
    WHERE logprobs IS NOT NULL AND segments IS NULL AND action_mask IS NOT NULL AND NOT coalesce(is_pad, false)
),
row_fault AS (
    SELECT
        run_id, step, group_id, coalesce(run['rollout_id'], rollout_id) AS trained_rollout_id, run['call_id'] AS call_id, build_id, row_index,
        run['start'] AS start, run['row_start'] AS row_start, unnest(logprob_faults(run['length'], NULL, run['advantages'])) AS fault
    FROM row_run
    -- A token that its segment calls context has no logprob to be kept: that it trains is token/mask's.
    WHERE NOT is_traced OR run['start'] IS NOT NULL
),
-- A row that only repeats its call's faults is not told again.
own_fault AS (
    SELECT * FROM (
        SELECT
            numbered.*,
            coalesce(sum(
                least(called.fault['position'] + called.fault['length'], numbered.start + numbered.at + numbered.length)
                    - greatest(called.fault['position'], numbered.start + numbered.at)
            ) OVER (PARTITION BY numbered.number), 0) AS told,
            row_number() OVER (PARTITION BY numbered.number) AS copy
        FROM (
            SELECT
                *, fault['position'] AS at, fault['length'] AS length, row_number() OVER () AS number
            FROM row_fault
        ) AS numbered
        LEFT JOIN faults AS called
            ON called.run_id = numbered.run_id AND called.call_id = numbered.call_id
            AND called.fault['position'] < numbered.start + numbered.at + numbered.length
            AND numbered.start + numbered.at < called.fault['position'] + called.fault['length']
    )
    WHERE copy = 1 AND told < length
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS build_id, CAST(NULL AS INTEGER) AS row_index,
    fault['position'] AS position,
    'output' AS position_in,
    fault['length'] AS length,
    'a finite number of at most 0' AS expected,
    fault['observed'] AS observed,
    concat(fault['length'], ' sampled tokens from output token ', fault['position'], ' on have the logprob ',
        fault['observed']) AS message
FROM faults
UNION ALL
SELECT
    run_id, step, group_id, trained_rollout_id, call_id, build_id, row_index,
    row_start + fault['position'], 'row', fault['length'], 'a finite number of at most 0', fault['observed'],
    concat(fault['length'], ' trained tokens from row token ', row_start + fault['position'], ' on have the logprob ',
        fault['observed'], CASE WHEN call_id IS NULL THEN '' ELSE concat(' where call ', call_id, ' has another') END)
FROM own_fault
