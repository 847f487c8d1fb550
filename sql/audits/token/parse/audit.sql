-- @question Does what the parsers gave stand in the text of the output?
-- @layer encoding
-- @severity error
-- @version 2
-- @outcome violation
-- @scope rollout
-- @needs calls.output_text, calls.parsed, calls.response, calls.output_token_ids, encodings.tokenizer_digest
-- @examined
--   SELECT call.run_id, count(*) AS examined
--   FROM calls AS call
--   LEFT JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id
--   WHERE (call.output_text IS NOT NULL OR (call.output_len IS NOT NULL AND coalesce(part.has_tokenizer, false)))
--       AND holds_parsed(call.parsed, call.response, call.choice_index) IS NOT NULL
--   GROUP BY call.run_id
-- @undeclared
--   SELECT run_id, 'calls.parsed' AS missing,
--       concat('keep the response, or what the parsers gave; ', count(*), ' calls with an output have neither') AS remedy
--   FROM calls
--   WHERE (output_text IS NOT NULL OR output_len IS NOT NULL) AND holds_parsed(parsed, response, choice_index) IS NULL
--   GROUP BY run_id
-- @undeclared
--   SELECT call.run_id, 'calls.output_text' AS missing,
--       concat('keep the whole text of the output, or its tokens and their tokenizer; ', count(*),
--           ' calls have only what the parsers gave') AS remedy
--   FROM calls AS call
--   LEFT JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id
--   WHERE call.output_text IS NULL AND holds_parsed(call.parsed, call.response, call.choice_index)
--       AND NOT (call.output_len IS NOT NULL AND coalesce(part.has_tokenizer, false))
--   GROUP BY call.run_id
SELECT
    run_id, step, group_id, rollout_id, call_id,
    'output' AS position_in,
    expected, observed,
    CASE kind
        WHEN 'content' THEN concat('the content parsed from ', call_id, ' does not stand in its text')
        WHEN 'reasoning' THEN concat('the reasoning parsed from ', call_id, ' does not stand in its text')
        WHEN 'tool_calls' THEN concat('of ', expected, ' of ', call_id, ' there are ', observed)
        WHEN 'name' THEN concat('the text of ', call_id, ' names no tool ', observed)
        ELSE concat('the text of ', call_id, ' does not hold the arguments ', observed)
    END AS message
FROM parse_differences
