-- @question Is the text of each output what its tokens spell?
-- @layer encoding
-- @severity error
-- @version 1
-- @outcome violation
-- @scope rollout
-- @needs calls.output_token_ids, calls.output_text, calls.encoding_id, encodings.tokenizer_digest
-- @examined
--   SELECT call.run_id, count(*) AS examined
--   FROM calls AS call
--   JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id AND part.has_tokenizer
--   WHERE call.output_len IS NOT NULL AND call.output_text IS NOT NULL
--       AND NOT coalesce(holds_parsed(call.parsed, call.response, call.choice_index), false)
--   GROUP BY call.run_id
-- @undeclared
--   SELECT run_id, 'calls.output_text' AS missing,
--       concat('keep the text that the engine gave; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE output_text IS NULL AND output_len IS NOT NULL
--       AND NOT coalesce(holds_parsed(parsed, response, choice_index), false)
--   GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_text' AS missing,
--       concat('keep the text as the engine gave it, before a parser took reasoning or tool calls out; ', count(*),
--           ' calls have only what was left') AS remedy
--   FROM calls WHERE output_len IS NOT NULL AND holds_parsed(parsed, response, choice_index) GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_token_ids' AS missing,
--       concat('ask the engine to return token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE output_len IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.encoding_id' AS missing,
--       concat('name the encoding of each call; ', count(*), ' calls with an output name none') AS remedy
--   FROM calls WHERE output_len IS NOT NULL AND encoding_id IS NULL GROUP BY run_id
-- @undeclared
--   SELECT call.run_id, 'encodings.tokenizer_digest' AS missing,
--       concat(coalesce(max(part.problem), 'put the tokenizer.json with this digest into blobs/ of an import'), '; ', count(*),
--           ' calls have an encoding without it, such as ', min(call.encoding_id)) AS remedy
--   FROM calls AS call
--   LEFT JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id
--   WHERE call.output_len IS NOT NULL AND call.encoding_id IS NOT NULL AND NOT coalesce(part.has_tokenizer, false)
--   GROUP BY call.run_id
SELECT
    run_id, step, group_id, rollout_id, call_id, position,
    CASE WHEN position IS NOT NULL THEN 'output' END AS position_in,
    expected, observed,
    CASE kind
        WHEN 'text' THEN concat('from token ', position, ' on the output of ', call_id, ' spells ''', expected, ''', and its text says ''',
            observed, '''')
        ELSE concat('the output of ', call_id, ' cannot be decoded: ', reason)
    END AS message
FROM text_differences
