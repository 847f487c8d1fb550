-- Calls without a declared break whose length shared with their parent no file tells, although both prompts are known.
WITH child AS (
    SELECT run_id, rollout_id, call_id, parent_call_id, prompt_len FROM calls
    WHERE parent_call_id IS NOT NULL AND parent_prefix_len IS NULL AND break_reason IS NULL AND prompt_len IS NOT NULL
),
known AS (
    SELECT call.run_id, call.rollout_id, call.call_id, call.prompt_len, call.output_len,
        count(*) OVER (PARTITION BY call.run_id, call.rollout_id, call.call_id) AS copies,
        count(*) OVER (PARTITION BY call.run_id, call.call_id) AS copies_in_run
    FROM (SELECT DISTINCT run_id, parent_call_id FROM child) AS named
    JOIN calls AS call ON call.run_id = named.run_id AND call.call_id = named.parent_call_id
)
SELECT child.run_id, child.rollout_id, child.call_id, parent.rollout_id AS parent_rollout, parent.call_id AS parent_call,
    CAST(child.prompt_len AS BIGINT) + parent.prompt_len + parent.output_len AS tokens
FROM child
JOIN known AS parent ON parent.run_id = child.run_id AND parent.call_id = child.parent_call_id
WHERE parent.prompt_len IS NOT NULL AND parent.output_len IS NOT NULL
    AND ((parent.rollout_id = child.rollout_id AND parent.copies = 1) OR parent.copies_in_run = 1)
ORDER BY 1, 2, 3
