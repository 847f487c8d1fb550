-- @question Does every sampled token have a logprob that a probability can have, and do stored distributions add up?
-- @layer policy
-- @severity error
-- @version 3
-- @outcome violation
-- @scope build
-- @needs calls.output_logprobs, calls.sampled_mask, samples.logprobs, samples.trainer_logprobs, samples.reference_logprobs, samples.segments, call_payloads.values, runs.vocab_size
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
-- What trained with a row's own logprobs. Nulls are left to the checks of calls where the row says of which call its tokens are.
row_run AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index, true AS is_traced,
        unnest(trained_advantages(segments, row_mask(action_mask, mask_convention), logprobs)) AS run
    FROM samples
    WHERE segments IS NOT NULL AND NOT coalesce(is_pad, false) AND has_odd_logprob(logprobs)
    UNION ALL
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index, false,
        unnest(trained_advantages(
            [named_struct('start', 0, 'length', cardinality(logprobs), 'trained', true)], row_mask(action_mask, mask_convention), logprobs
        ))
    FROM samples
    WHERE logprobs IS NOT NULL AND segments IS NULL AND action_mask IS NOT NULL AND NOT coalesce(is_pad, false)
),
row_fault AS (
    SELECT
        run_id, step, group_id, coalesce(run['rollout_id'], rollout_id) AS trained_rollout_id, run['call_id'] AS call_id, build_id,
        epoch, micro_batch, rank, row_index, is_traced, run['start'] AS start, run['row_start'] AS row_start,
        unnest(logprob_faults(run['length'], NULL, coalesce(run['advantages'], array_repeat(run['advantage'], run['length'])))) AS fault
    FROM row_run
    -- A token that its segment calls context has no logprob to be kept: that it trains is token/mask's.
    WHERE NOT is_traced OR run['start'] IS NOT NULL
),
-- A row that only repeats its call's faults is not told again.
own_fault AS (
    SELECT * FROM (
        SELECT
            numbered.*,
            -- least and greatest pass over nulls: a row's fault without one of its call is told by nobody.
            coalesce(sum(CASE WHEN called.call_id IS NOT NULL THEN
                least(called.fault['position'] + called.fault['length'], numbered.start + numbered.at + numbered.length)
                    - greatest(called.fault['position'], numbered.start + numbered.at)
            END) OVER (PARTITION BY numbered.number), 0) AS told,
            row_number() OVER (PARTITION BY numbered.number) AS copy
        FROM (
            SELECT
                row_fault.*, fault['position'] AS at, fault['length'] AS length, row_number() OVER () AS number
            FROM row_fault
            -- That a row lacks a logprob is told by its call: token/logprob_align where that has one, undeclared where it has none.
            WHERE NOT is_traced OR NOT regexp_like(row_fault.fault['observed'], '^null(, null)*(, …)?$')
        ) AS numbered
        LEFT JOIN faults AS called
            ON called.run_id = numbered.run_id AND called.call_id = numbered.call_id
            AND called.fault['position'] < numbered.start + numbered.at + numbered.length
            AND numbered.start + numbered.at < called.fault['position'] + called.fault['length']
    )
    WHERE copy = 1 AND told < length
),
-- What the trainer and the reference model gave trained tokens: a ratio or a KL of it is no number. Not computed is not wrong.
computed AS (
    SELECT run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index, 'reference_logprobs' AS field,
        unnest(trained_advantages(segments, row_mask(action_mask, mask_convention), reference_logprobs)) AS run
    FROM samples
    WHERE segments IS NOT NULL AND NOT coalesce(is_pad, false) AND has_odd_logprob(reference_logprobs)
    UNION ALL
    SELECT run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index, 'trainer_logprobs',
        unnest(trained_advantages(segments, row_mask(action_mask, mask_convention), trainer_logprobs))
    FROM samples
    WHERE segments IS NOT NULL AND NOT coalesce(is_pad, false) AND has_odd_logprob(trainer_logprobs)
),
computed_fault AS (
    SELECT
        run_id, step, group_id, coalesce(run['rollout_id'], rollout_id) AS trained_rollout_id, run['call_id'] AS call_id, build_id,
        epoch, micro_batch, rank, row_index, field, run['row_start'] AS row_start,
        unnest(logprob_faults(run['length'], NULL, coalesce(run['advantages'], array_repeat(run['advantage'], run['length'])))) AS fault
    FROM computed
    WHERE run['start'] IS NOT NULL
),
-- The likeliest tokens' logprobs of each place, or those of the whole vocabulary.
listed AS (
    SELECT
        payload.run_id, call.step, call.group_id, call.rollout_id, payload.call_id, call.prompt_len, payload.first,
        unnest(distribution_faults(
            payload."values", payload.shape, coalesce(policy.vocab_size, run.vocab_size), call.output_logprobs, payload.first - call.prompt_len
        )) AS fault
    FROM (
        SELECT run_id, rollout_id, call_id, coalesce("start", 0) AS first, "values", shape FROM call_payloads
        WHERE name IN ('top_logprobs', 'logprobs') AND "values" IS NOT NULL
    ) AS payload
    JOIN calls AS call
        ON call.run_id = payload.run_id AND call.call_id = payload.call_id
        AND (payload.rollout_id IS NULL OR call.rollout_id = payload.rollout_id)
    LEFT JOIN (SELECT run_id, min(vocab_size) AS vocab_size FROM runs GROUP BY run_id) AS run ON run.run_id = payload.run_id
    LEFT JOIN policy_vocab AS policy ON policy.run_id = call.run_id AND policy.policy_id = coalesce(call.policy_id, 'policy')
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    fault['position'] AS position,
    'output' AS position_in,
    fault['length'] AS length,
    'a finite number of at most 0, and no sentinel' AS expected,
    fault['observed'] AS observed,
    concat(fault['length'], ' sampled tokens from output token ', fault['position'], ' on have the logprob ',
        fault['observed']) AS message
FROM faults
UNION ALL
SELECT
    run_id, step, group_id, trained_rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index,
    row_start + fault['position'], 'row', fault['length'], 'a finite number of at most 0, and no sentinel', fault['observed'],
    concat(fault['length'], ' trained tokens from row token ', row_start + fault['position'], ' on have the logprob ',
        fault['observed'], CASE WHEN call_id IS NULL THEN '' ELSE concat(' where call ', call_id, ' has another') END)
FROM own_fault
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL,
    CASE
        WHEN first + fault['position'] >= prompt_len THEN first + fault['position'] - prompt_len
        ELSE first + fault['position']
    END,
    CASE WHEN first + fault['position'] >= prompt_len THEN 'output' ELSE 'prompt' END, 1, fault['expected'], fault['observed'],
    CASE fault['kind']
        WHEN 'sum' THEN
            concat('the probabilities stored for token ', first + fault['position'], ' of the context of ', call_id, ' add up to ',
                fault['observed'], ': the logprobs were scaled after the softmax')
        ELSE
            concat('the logprob ', fault['observed'], ' of the token sampled at ', first + fault['position'], ' of the context of ', call_id,
                ' is above the last of the stored distribution, and not in it')
    END
FROM listed
UNION ALL
SELECT
    run_id, step, group_id, trained_rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index,
    row_start + fault['position'], 'row', fault['length'],
    'a finite number of at most 0, and no sentinel', fault['observed'],
    concat(fault['length'], ' trained tokens from row token ', row_start + fault['position'], ' on have ', fault['observed'], ' in ', field)
FROM computed_fault
WHERE NOT regexp_like(fault['observed'], '^null(, null)*(, …)?$')
