-- @question Is each prompt what the stored chat template and tokenizer make of the stored request?
-- @layer encoding
-- @severity warning
-- @version 1
-- @outcome violation
-- @needs calls.request, calls.prompt_token_ids, calls.encoding_id, encodings.tokenizer_digest,
--   encodings.chat_template_digest, encodings.special_token_map
-- @examined
--   SELECT call.run_id, count(*) AS examined
--   FROM (
--       SELECT run_id, encoding_id, has_messages(request) AS has_messages
--       FROM calls WHERE prompt_len > 0 AND multimodal_spans IS NULL
--   ) AS call
--   JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id
--   WHERE ((part.has_tokenizer AND part.has_chat_template AND NOT part.lacks_special_tokens AND call.has_messages)
--           OR call.encoding_id IN (SELECT encoding_id FROM encodings WHERE special_token_map IS NOT NULL))
--   GROUP BY call.run_id
-- @undeclared
--   SELECT run_id, 'calls.prompt_token_ids' AS missing,
--       concat('ask the engine to return prompt token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE prompt_len IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.request' AS missing,
--       concat('keep the request with its messages; ', count(*), ' calls with a prompt have none') AS remedy
--   FROM calls WHERE prompt_len > 0 AND NOT coalesce(has_messages(request), false) GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.encoding_id' AS missing,
--       concat('name the encoding that rendered each prompt; ', count(*), ' calls with a request name none') AS remedy
--   FROM calls WHERE prompt_len > 0 AND request IS NOT NULL AND encoding_id IS NULL GROUP BY run_id
-- @undeclared
--   SELECT call.run_id, 'encodings.tokenizer_digest' AS missing,
--       concat(coalesce(max(part.problem), 'put the tokenizer.json with this digest into blobs/ of an import'), '; ', count(*),
--           ' calls have an encoding without it, such as ', min(call.encoding_id)) AS remedy
--   FROM calls AS call
--   LEFT JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id
--   WHERE call.prompt_len > 0 AND call.request IS NOT NULL AND call.encoding_id IS NOT NULL
--       AND NOT coalesce(part.has_tokenizer, false)
--   GROUP BY call.run_id
-- @undeclared
--   SELECT call.run_id, 'encodings.chat_template_digest' AS missing,
--       concat(coalesce(max(part.problem), 'put the chat template with this digest into blobs/ of an import'), '; ', count(*),
--           ' calls have an encoding without it, such as ', min(call.encoding_id)) AS remedy
--   FROM calls AS call
--   LEFT JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id
--   WHERE call.prompt_len > 0 AND call.request IS NOT NULL AND call.encoding_id IS NOT NULL
--       AND NOT coalesce(part.has_chat_template, false)
--   GROUP BY call.run_id
-- @undeclared
--   SELECT call.run_id, 'encodings.special_token_map' AS missing,
--       concat('say which special tokens the template may use (bos_token, eos_token); ', count(*), ' calls have an encoding that does not')
--           AS remedy
--   FROM calls AS call
--   JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id
--   WHERE call.prompt_len > 0 AND call.request IS NOT NULL AND part.lacks_special_tokens
--   GROUP BY call.run_id
-- @undeclared
--   SELECT call.run_id, 'calls.started_at' AS missing,
--       concat('record when each request was sent: the template writes the date; ', count(*), ' calls do not say') AS remedy
--   FROM calls AS call
--   JOIN encoding_parts AS part ON part.encoding_id = call.encoding_id
--   WHERE call.prompt_len > 0 AND call.request IS NOT NULL AND part.asks_for_time AND call.started_at IS NULL
--   GROUP BY call.run_id
-- @undeclared
--   SELECT run_id, 'calls.request' AS missing,
--       concat('the template cannot work with ', count(*), ' requests: ', min(reason)) AS remedy
--   FROM template_differences WHERE kind = 'failed' GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.multimodal_spans' AS missing,
--       concat('prompts with media are not rendered, since the engine puts placeholders for them; ', count(*), ' calls have some') AS remedy
--   FROM calls WHERE prompt_len > 0 AND multimodal_spans IS NOT NULL AND request IS NOT NULL GROUP BY run_id
WITH found AS (
    SELECT * FROM template_differences WHERE kind <> 'failed'
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    position,
    CASE WHEN position IS NOT NULL THEN 'prompt' END AS position_in,
    expected, observed,
    CASE kind
        WHEN 'text' THEN concat('from token ', position, ' on the prompt of ', call_id, ' is not what the template renders of its request')
        WHEN 'tokens' THEN concat('from token ', position, ' on the prompt of ', call_id,
            ' has the rendered text, cut into other tokens than the tokenizer makes')
        WHEN 'marker' THEN concat('token ', position, ' of the prompt of ', call_id, ' is ', observed, ', and stands in the middle')
        WHEN 'seam' THEN concat('token ', position, ' of the prompt of ', call_id,
            ' follows a sampled end of turn, and no first prompt has it there')
        WHEN 'generation_prompt' THEN concat('the prompt of ', call_id, ' does not end with the generation prompt')
        ELSE concat('the stored request of ', call_id, ' cannot have made its prompt: ', reason)
    END AS message
FROM found
WHERE NOT EXISTS (
    -- A place that an earlier call has handed down is told of once, there.
    SELECT 1 FROM found AS earlier
    WHERE earlier.run_id = found.run_id AND earlier.rollout_id = found.rollout_id
        AND earlier.call_index < found.call_index AND earlier.position = found.position AND earlier.kind = found.kind
        AND coalesce(found.inherited > found.position, true)
)
