-- One row per trainable call that has tokens: the row that a trainer would have of it, and its trained tokens.
--
-- row_id = the first call of its chain of exact extensions, which one row holds, as the build `merged` makes it. A parent in
-- another import is no known parent here: compact the lake to join them. trained_tokens = output tokens that the action mask
-- selects, else the sampled ones.
SELECT
    run_id,
    rollout_id,
    call_id,
    call_index,
    root AS row_id,
    trained AS trained_tokens
FROM (
    SELECT
        run_id,
        rollout_id,
        call_id,
        call_index,
        is_useful,
        trained,
        chain_root(call_id, parent_call_id, extends)
            OVER (PARTITION BY run_id, rollout_id ORDER BY call_index, call_id) AS root
    FROM (
        SELECT
            child.run_id,
            child.rollout_id,
            child.call_id,
            child.call_index,
            child.parent_call_id,
            child.is_useful,
            child.trained,
            coalesce(child.parent_prefix_len = parent.context_len, false) AS extends
        FROM (
            SELECT
                run_id, rollout_id, call_id, call_index, parent_call_id, parent_prefix_len,
                output_len > 0 AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact')) AS is_useful,
                sampled_count(output_len, coalesce(action_mask, sampled_mask)) AS trained,
                count(*) OVER (PARTITION BY run_id, call_id) AS copies
            FROM calls
            WHERE call_id IS NOT NULL
        ) AS child
        LEFT JOIN (
            -- An id that several calls of the run have means none of them.
            SELECT run_id, rollout_id, call_id, max(CAST(prompt_len AS BIGINT) + output_len) AS context_len
            FROM calls
            WHERE call_id IS NOT NULL
            GROUP BY run_id, rollout_id, call_id
            HAVING count(*) = 1
        ) AS parent
            ON parent.run_id = child.run_id
            AND parent.rollout_id = child.rollout_id
            AND parent.call_id = child.parent_call_id
        WHERE child.copies = 1
    )
)
WHERE is_useful
