-- Outputs that stopped and lack an end, with the call that continues them: lost_end says which prompts have it.
SELECT child.run_id, child.call_id AS next_call_id, parent.call_id, parent.context, parent.eos_token_ids
FROM (
    SELECT run_id, rollout_id, call_id, prompt_len + output_len AS context, eos_token_ids FROM call_end
    WHERE is_stop AND NOT is_ended AND stop_token IS NULL AND stop_string IS NULL
        AND coalesce(tokens_trimmed, 0) = 0 AND cardinality(eos_token_ids) > 0
) AS parent
JOIN (
    SELECT run_id, rollout_id, call_id, parent_call_id, parent_prefix_len FROM calls
    WHERE parent_call_id IS NOT NULL AND prompt_len > parent_prefix_len
) AS child
    ON child.run_id = parent.run_id AND child.parent_call_id = parent.call_id
    AND child.rollout_id IS NOT DISTINCT FROM parent.rollout_id AND child.parent_prefix_len = parent.context
