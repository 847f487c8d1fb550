-- One row per trainable call: the trajectory it belongs to, and which of its tokens were sampled and are meant to train. A
-- call follows the one it continues, else its parent, else the call before it of the same agent. Ids that several calls of
-- the run have mean none of them.
WITH linked AS (
    SELECT
        run_id,
        rollout_id,
        call_id,
        call_index,
        COALESCE(
            continues_call_id,
            parent_call_id,
            CASE
                WHEN COALESCE(choice_index, 0) = 0
                THEN lag(call_id) OVER (PARTITION BY run_id, rollout_id, agent_id ORDER BY call_index, call_id)
            END
        ) AS follows,
        count(*) OVER (PARTITION BY run_id, call_id) AS copies
    FROM calls
    WHERE call_id IS NOT NULL
),
paths AS (
    SELECT
        run_id,
        call_id,
        trajectory_id(call_id, follows) OVER (PARTITION BY run_id, rollout_id ORDER BY call_index, call_id) AS trajectory_id
    FROM linked
    WHERE copies = 1
)
SELECT
    call.run_id,
    call.step,
    call.group_id,
    call.rollout_id,
    call.call_id,
    call.call_index,
    call.turn_index,
    path.trajectory_id,
    -- Tokens that came in between: observations, templates.
    CASE
        WHEN path.trajectory_id <> call.call_id THEN CAST(call.prompt_len AS BIGINT) - call.parent_prefix_len
    END AS gap_len,
    call.output_len,
    token_mask(call.output_len, call.sampled_mask, call.action_mask, call.call_id) AS token_mask
FROM calls AS call
JOIN paths AS path ON path.run_id = call.run_id AND path.call_id = call.call_id
WHERE call.output_len IS NOT NULL AND COALESCE(call.is_trainable, COALESCE(call.kind, 'act') IN ('act', 'compact'))
