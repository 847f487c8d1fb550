-- Calls with the tool calls that were parsed from them, and whether their text has marks of some.
SELECT
    run_id, step, group_id, rollout_id, call_id, call_index, parent_call_id, break_reason, prompt_len, parent_prefix_len,
    output_len, output_digest, finish_reason, is_selected, coalesce(kind, 'act') AS kind,
    coalesce(json_length(parsed, 'tool_calls'), 0) AS tool_calls,
    -- The marks in which models write tool calls, of whatever family; a mark that is quoted as code calls nothing.
    coalesce(regexp_like(output_text, concat(
        '(^|[^`])(<[|]?(\w+:)?(tool_?calls?|function_calls?|tool_use|tool_code|longcat_tool_call)[|]?>',
        '|<[|](python_tag|action_start|tool_calls?_(section_)?(begin|start))[|]>',
        '|<function=|<invoke name=|<start_function_call>|\[TOOL_CALLS?\]|<｜tool▁calls?▁begin｜>|to=functions[.]|✿FUNCTION✿|functools\[',
        ')|```tool_(call|code)'), 'i'), false) AS is_marked
FROM calls
