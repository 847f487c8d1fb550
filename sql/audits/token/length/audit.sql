-- @question Does everything that is counted per token have as many items as there are tokens?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope rollout
-- @needs calls.output_len, calls.prompt_len, samples.token_ids
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls WHERE output_len IS NOT NULL GROUP BY run_id
--   UNION ALL
--   SELECT run_id, count(*) AS examined FROM samples WHERE token_ids IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_token_ids' AS missing,
--       concat('ask the engine to return token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE output_len IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.token_ids' AS missing,
--       concat('keep the ids of the rows; ', count(*), ' rows have none') AS remedy
--   FROM samples WHERE token_ids IS NULL GROUP BY run_id, build_id
WITH call_lengths AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, max_tokens,
        CAST(output_len AS BIGINT) AS output_len,
        CAST(prompt_len AS BIGINT) AS prompt_len,
        CAST(cardinality(output_logprobs) AS BIGINT) AS logprobs,
        CAST(cardinality(sampled_mask) AS BIGINT) AS sampled,
        CAST(cardinality(action_mask) AS BIGINT) AS actions,
        -- What the engine cut off again, it billed all the same.
        CAST(CASE
            WHEN usage_output_tokens - output_len BETWEEN 0 AND coalesce(tokens_trimmed, 0) THEN output_len
            ELSE usage_output_tokens
        END AS BIGINT) AS billed_output,
        CAST(usage_prompt_tokens AS BIGINT) AS billed_prompt,
        span_outside(policy_spans, output_len) AS policy_start,
        span_outside(multimodal_spans, prompt_len) AS media_start
    FROM calls
),
call_faults AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id,
        unnest([
            named_struct('field', 'output_logprobs', 'position_in', 'output', 'expected', output_len, 'observed', logprobs),
            named_struct('field', 'sampled_mask', 'position_in', 'output', 'expected', output_len, 'observed', sampled),
            named_struct('field', 'action_mask', 'position_in', 'output', 'expected', output_len, 'observed', actions),
            named_struct('field', 'usage_output_tokens', 'position_in', 'output', 'expected', output_len, 'observed', billed_output),
            named_struct('field', 'usage_prompt_tokens', 'position_in', 'prompt', 'expected', prompt_len, 'observed', billed_prompt)
        ]) AS fault
    FROM call_lengths
    WHERE logprobs <> output_len
        OR sampled <> output_len
        OR actions <> output_len
        OR billed_output <> output_len
        OR billed_prompt <> prompt_len
),
signals AS (
    SELECT signal.run_id, signal.rollout_id, signal.call_id, signal.name, CAST(cardinality(signal."values") AS BIGINT) AS items
    FROM token_signals AS signal
    WHERE signal."values" IS NOT NULL
),
payloads AS (
    SELECT run_id, rollout_id, call_id, name, coalesce("start", 0) AS first, CAST(shape[1] AS BIGINT) AS items
    FROM call_payloads
    WHERE cardinality(shape) > 0
),
row_lengths AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        CAST(cardinality(token_ids) AS BIGINT) AS tokens,
        CAST(cardinality(position_ids) AS BIGINT) AS positions,
        CAST(cardinality(action_mask) AS BIGINT) AS actions,
        CAST(cardinality(logprobs) AS BIGINT) AS logprobs,
        CAST(cardinality(advantages) AS BIGINT) AS advantages,
        CAST(cardinality(loss_weights) AS BIGINT) AS weights,
        CAST(cardinality(trainer_logprobs) AS BIGINT) AS trainer,
        CAST(cardinality(reference_logprobs) AS BIGINT) AS reference
    FROM samples
    WHERE token_ids IS NOT NULL
),
row_faults AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest([
            named_struct('field', 'position_ids', 'expected', tokens, 'observed', positions),
            named_struct('field', 'action_mask', 'expected', tokens, 'observed', actions),
            named_struct('field', 'logprobs', 'expected', tokens, 'observed', logprobs),
            named_struct('field', 'advantages', 'expected', tokens, 'observed', advantages),
            named_struct('field', 'loss_weights', 'expected', tokens, 'observed', weights),
            named_struct('field', 'trainer_logprobs', 'expected', tokens, 'observed', trainer),
            named_struct('field', 'reference_logprobs', 'expected', tokens, 'observed', reference)
        ]) AS fault
    FROM row_lengths
    WHERE positions <> tokens
        OR actions <> tokens
        OR logprobs <> tokens
        OR advantages <> tokens
        OR weights <> tokens
        OR trainer <> tokens
        OR reference <> tokens
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    CAST(NULL AS INTEGER) AS position,
    fault['position_in'] AS position_in,
    CAST(fault['expected'] AS VARCHAR) AS expected,
    CAST(fault['observed'] AS VARCHAR) AS observed,
    concat('calls.', fault['field'], ' says ', fault['observed'], ' where the ', fault['position_in'], ' has ',
        fault['expected'], ' tokens') AS message
FROM call_faults
WHERE fault['observed'] <> fault['expected']
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, max_tokens, 'output',
    CAST(max_tokens AS VARCHAR), CAST(output_len AS VARCHAR),
    concat('the output has ', output_len, ' tokens, and the call''s limit is max_tokens = ', max_tokens)
FROM call_lengths
WHERE output_len > max_tokens
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, policy_start, 'output',
    CAST(output_len AS VARCHAR), CAST(policy_start AS VARCHAR),
    concat('a policy span starts at ', policy_start, ', outside an output of ', output_len, ' tokens')
FROM call_lengths
WHERE policy_start IS NOT NULL
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, media_start, 'prompt',
    CAST(prompt_len AS VARCHAR), CAST(media_start AS VARCHAR),
    concat('a multimodal span at ', media_start, ' lies outside a prompt of ', prompt_len, ' tokens')
FROM call_lengths
WHERE media_start IS NOT NULL
UNION ALL
SELECT
    call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, NULL, NULL, NULL, NULL, NULL, NULL, 'output',
    CAST(call.output_len AS VARCHAR), CAST(signals.items AS VARCHAR),
    concat('the signal ', signals.name, ' has ', signals.items, ' values where the output has ', call.output_len, ' tokens')
FROM signals
JOIN call_lengths AS call ON call.run_id = signals.run_id AND call.call_id = signals.call_id
    AND (signals.rollout_id IS NULL OR call.rollout_id = signals.rollout_id)
WHERE signals.items <> call.output_len
UNION ALL
-- The last token of a context need not have been run through the model, so a payload may end one before it.
SELECT
    call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, NULL, NULL, NULL, NULL, NULL, payloads.first, NULL,
    CAST(call.prompt_len + call.output_len - payloads.first AS VARCHAR), CAST(payloads.items AS VARCHAR),
    concat('the payload ', payloads.name, ' has ', payloads.items, ' rows from token ', payloads.first,
        ' on, where prompt and output end at ', call.prompt_len + call.output_len)
FROM payloads
JOIN call_lengths AS call ON call.run_id = payloads.run_id AND call.call_id = payloads.call_id
    AND (payloads.rollout_id IS NULL OR call.rollout_id = payloads.rollout_id)
WHERE payloads.first + payloads.items > call.prompt_len + call.output_len
    OR payloads.first + payloads.items < call.prompt_len + call.output_len - 1
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, NULL, build_id, epoch, micro_batch, rank, row_index, NULL, 'row',
    CAST(fault['expected'] AS VARCHAR), CAST(fault['observed'] AS VARCHAR),
    concat('samples.', fault['field'], ' has ', fault['observed'], ' items where the row has ', fault['expected'], ' tokens')
FROM row_faults
WHERE fault['observed'] <> fault['expected']
