-- How calls ended, in the words of several engines, and the limits that their runs declare.
SELECT
    call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, call.finish_reason, call.prompt_len, call.output_len,
    call.last_token, call.stop_token, call.stop_string, call.tokens_trimmed, call.usage_output_tokens, call.max_tokens,
    run.eos_token_ids, run.max_context_tokens,
    -- The first end that is not the last token, counted from 1.
    first_of(call.output_token_ids, run.eos_token_ids, call.sampled_mask) AS first_end,
    coalesce(json_get_bool(call.sampling, 'ignore_eos'), false) AS ignores_end,
    call.reason IN ('stop', 'eos', 'eos_token', 'end_turn', 'tool_calls', 'tool_use', 'function_call') AS is_stop,
    call.reason IN ('length', 'max_tokens', 'max_output_tokens') AS is_length,
    coalesce(array_has(run.eos_token_ids, call.last_token), false) OR coalesce(call.last_token = call.stop_token, false) AS is_ended
FROM (
    SELECT run_id, max(eos_token_ids) AS eos_token_ids, max(max_context_tokens) AS max_context_tokens FROM runs GROUP BY run_id
) AS run
RIGHT JOIN (
    SELECT
        run_id, step, group_id, rollout_id, call_id, finish_reason, lower(coalesce(finish_reason, '')) AS reason, prompt_len, output_len,
        output_token_ids, sampled_mask, sampling,
        output_token_ids[output_len] AS last_token, stop_token, stop_string, tokens_trimmed, usage_output_tokens, max_tokens
    FROM calls
    WHERE output_len IS NOT NULL
) AS call ON call.run_id = run.run_id
