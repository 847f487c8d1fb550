-- One row per call with its full context: the tokens that the model saw and then gave.
SELECT
    run_id,
    step,
    group_id,
    rollout_id,
    call_id,
    call_index,
    parent_call_id,
    kind,
    prompt_len,
    output_len,
    prompt_len + output_len AS context_len,
    CASE
        WHEN prompt_token_ids IS NOT NULL AND output_token_ids IS NOT NULL
        THEN array_concat(prompt_token_ids, output_token_ids)
    END AS context_token_ids
FROM calls
