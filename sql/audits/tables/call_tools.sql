-- Calls that call tools: how many were parsed from them, and whether their text has marks of some.
SELECT *
FROM (
    SELECT
        run_id, step, group_id, rollout_id, call_id,
        coalesce(json_length(parsed, 'tool_calls'), 0) AS tool_calls,
        -- The marks in which models write tool calls, of whatever family; a mark that is quoted as code calls nothing.
        coalesce(regexp_like(output_text, concat(
            '(^|[^`])(<[|]?(\w+:)?(tool_?calls?|function_calls?|tool_use|tool_code|longcat_tool_call)[|]?>',
            '|<[|](python_tag|action_start|tool_calls?_(section_)?(begin|start))[|]>',
            '|<function=|<invoke name=|<start_function_call>|\[TOOL_CALLS?\]|<｜tool▁calls?▁begin｜>|to=functions[.]|✿FUNCTION✿|functools\[',
            ')|```tool_(call|code)'), 'i'), false) AS is_marked
    FROM calls
)
WHERE tool_calls > 0 OR is_marked
