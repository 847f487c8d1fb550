-- @question Is every id one that the model and its tokenizer have?
-- @layer encoding
-- @severity error
-- @version 2
-- @outcome rule
-- @needs calls.prompt_token_ids, calls.output_token_ids, calls.encoding_id, samples.token_ids, runs.vocab_size, encodings.vocab_size,
--   policies.vocab_size
-- @examined
--   SELECT run_id, sum(coalesce(prompt_len, 0) + coalesce(output_len, 0)) AS examined
--   FROM calls WHERE prompt_len IS NOT NULL OR output_len IS NOT NULL GROUP BY run_id
--   UNION ALL
--   SELECT run_id, sum(tokens) AS examined
--   FROM (SELECT run_id, cardinality(token_ids) AS tokens FROM samples WHERE token_ids IS NOT NULL)
--   GROUP BY run_id
-- @undeclared
--   SELECT call.run_id, 'runs.vocab_size' AS missing, 'declare how many ids the policy has' AS remedy
--   FROM (
--     SELECT run_id FROM calls WHERE output_len IS NOT NULL
--     UNION
--     SELECT run_id FROM samples WHERE token_ids IS NOT NULL
--   ) AS call
--   LEFT ANTI JOIN (
--     SELECT run_id FROM runs WHERE vocab_size IS NOT NULL UNION ALL SELECT run_id FROM policies WHERE vocab_size IS NOT NULL
--   ) AS run ON run.run_id = call.run_id
-- @undeclared
--   SELECT run_id, 'calls.output_token_ids' AS missing,
--       concat('ask the engine to return token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE output_len IS NULL GROUP BY run_id

-- Tokens are read again of the calls and rows whose range of ids is not within what is declared, and of no other.
WITH judged AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, suspect.vocab_size, suspect.named_size,
        id_faults(call.prompt_token_ids, suspect.vocab_size, suspect.named_size, coalesce(call.parent_prefix_len, 0)) AS in_prompt,
        id_faults(call.output_token_ids, suspect.vocab_size, suspect.named_size, 0) AS in_output
    FROM id_suspect AS suspect
    JOIN (
        SELECT
            run_id, step, group_id, rollout_id, call_id, call_index, parent_prefix_len, prompt_token_ids, output_token_ids
        FROM calls
    ) AS call
        ON call.run_id IS NOT DISTINCT FROM suspect.run_id AND call.rollout_id IS NOT DISTINCT FROM suspect.rollout_id
        AND call.call_id IS NOT DISTINCT FROM suspect.call_id AND call.call_index IS NOT DISTINCT FROM suspect.call_index
),
in_call AS (
    SELECT run_id, step, group_id, rollout_id, call_id, vocab_size, named_size, 'prompt' AS position_in, unnest(in_prompt) AS fault
    FROM judged WHERE cardinality(in_prompt) > 0
    UNION ALL
    SELECT run_id, step, group_id, rollout_id, call_id, vocab_size, named_size, 'output', unnest(in_output)
    FROM judged WHERE cardinality(in_output) > 0
),
in_row AS (
    SELECT run_id, step, rollout_id, build_id, epoch, micro_batch, rank, row_index, vocab_size, unnest(faults) AS fault
    FROM (
        SELECT
            row.run_id, row.step, row.rollout_id, row.build_id, row.epoch, row.micro_batch, row.rank, row.row_index, suspect.vocab_size,
            id_faults(row.token_ids, suspect.vocab_size, NULL, 0) AS faults
        FROM row_id_suspect AS suspect
        JOIN (
            SELECT run_id, step, rollout_id, build_id, epoch, optimizer_step, micro_batch, rank, row_index, token_ids FROM samples
            WHERE token_ids IS NOT NULL AND NOT coalesce(is_pad, false)
        ) AS row
            ON row.run_id IS NOT DISTINCT FROM suspect.run_id AND row.step IS NOT DISTINCT FROM suspect.step
            AND row.build_id IS NOT DISTINCT FROM suspect.build_id AND row.epoch IS NOT DISTINCT FROM suspect.epoch
            AND row.optimizer_step IS NOT DISTINCT FROM suspect.optimizer_step
            AND row.micro_batch IS NOT DISTINCT FROM suspect.micro_batch AND row.rank IS NOT DISTINCT FROM suspect.rank
            AND row.row_index IS NOT DISTINCT FROM suspect.row_index
    )
    WHERE cardinality(faults) > 0
)
SELECT
    CASE fault['class'] WHEN 'outside' THEN 'rule' ELSE 'violation' END AS outcome,
    run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    fault['position'] AS position,
    position_in,
    fault['length'] AS length,
    CASE fault['class']
        WHEN 'negative' THEN 'ids from 0 on'
        WHEN 'outside' THEN concat('ids below ', vocab_size)
        ELSE concat('ids that the tokenizer names, below ', named_size)
    END AS expected,
    fault['observed'] AS observed,
    concat('the ', position_in, ' of ', call_id, ' has from token ', fault['position'], ' on ', fault['observed'],
        CASE fault['class']
            WHEN 'negative' THEN ', which is no id'
            WHEN 'outside' THEN concat(', outside the ', vocab_size, ' ids of the policy')
            ELSE concat(', which the tokenizer of ', named_size, ' ids does not name: its text is lost')
        END) AS message
FROM in_call
UNION ALL
SELECT
    CASE fault['class'] WHEN 'outside' THEN 'rule' ELSE 'violation' END,
    run_id, step, NULL, rollout_id, NULL, build_id, epoch, micro_batch, rank, row_index, fault['position'], 'row', fault['length'],
    CASE fault['class'] WHEN 'negative' THEN 'ids from 0 on' ELSE concat('ids below ', vocab_size) END,
    fault['observed'],
    concat('the row has from token ', fault['position'], ' on ', fault['observed'],
        CASE fault['class']
            WHEN 'negative' THEN ', which is no id'
            ELSE concat(', outside the ', vocab_size, ' ids of the run''s smallest model')
        END)
FROM in_row
UNION ALL
-- Ids that a client made fall back to 0 where they find none; an engine's 0 is a token like others.
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL,
    array_position(output_token_ids, 0) - 1, 'output', 1, 'a sampled id', '0',
    concat('the output of ', call_id, ' was made from text and has id 0 at token ', array_position(output_token_ids, 0) - 1,
        ': what a lookup gives that found nothing')
FROM calls
WHERE output_exactness = 'rendered' AND array_position(output_token_ids, 0) > 0
