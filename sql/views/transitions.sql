-- One row per call and its declared parent: what the harness declares, and what messages, text and tokens show.
--
-- No token is read: an extension is parent_prefix_len = the parent's prompt_len + output_len. Requests are read only
-- where message_relation, text_relation or observed_break is asked for.
SELECT
    run_id,
    step,
    group_id,
    rollout_id,
    call_id,
    call_index,
    turn_index,
    kind,
    parent_call_id,
    parent_call_index,
    declared_break,
    message_relation,
    text_relation,
    token_relation,
    CASE WHEN token_relation = 'rewrites' THEN parent_prefix_len END AS first_difference,
    CASE WHEN token_relation <> 'unknown' THEN parent_context_len - parent_prefix_len END AS tokens_lost,
    CASE
        WHEN token_relation <> 'rewrites' THEN NULL
        WHEN message_relation = 'rewrites' THEN 'harness'
        WHEN text_relation = 'extends' THEN 'retokenized'
        WHEN text_relation = 'rewrites' AND message_relation = 'extends' THEN 'template'
    END AS observed_break
FROM (
    SELECT
        c.run_id,
        c.step,
        c.group_id,
        c.rollout_id,
        c.call_id,
        c.call_index,
        c.turn_index,
        c.kind,
        c.parent_call_id,
        c.parent_prefix_len,
        p.call_index AS parent_call_index,
        p.prompt_len + p.output_len AS parent_context_len,
        c.break_reason AS declared_break,
        message_relation(c.request, p.request, p.response, coalesce(p.choice_index, 0)) AS message_relation,
        CASE
            WHEN c.parent_prefix_len = p.prompt_len + p.output_len THEN 'extends'
            ELSE text_relation(c.request, p.request, p.output_text, coalesce(p.choice_index, 0))
        END AS text_relation,
        CASE
            WHEN c.parent_call_id IS NULL THEN NULL
            WHEN c.parent_prefix_len IS NULL OR p.prompt_len IS NULL OR p.output_len IS NULL THEN 'unknown'
            WHEN c.parent_prefix_len = p.prompt_len + p.output_len THEN 'extends'
            ELSE 'rewrites'
        END AS token_relation
    FROM calls AS c
    LEFT JOIN calls AS p
        ON c.run_id = p.run_id AND c.rollout_id = p.rollout_id AND c.parent_call_id = p.call_id
)
