-- One row per call and its declared parent: what the harness declares, and what messages, text and tokens show.
--
-- An extension is parent_prefix_len = the parent's prompt_len + output_len; no token is read for it. Requests are read only where
-- message_relation, text_relation or observed_break is asked for, tokens where one of the last two is, and then only of calls that
-- leave their parent's context: their text is decoded with the encoding's tokenizer, if the lake holds it.
--
-- observed_break names the layer that broke an extension: harness (the messages do not extend), retokenized (the text extends, the
-- tokens do not), template (the messages extend, the text does not), or encoding (the messages extend and the text is unknown, so it is
-- one of the last two).
WITH broken AS (
    SELECT
        c.run_id, c.rollout_id, c.call_id, c.parent_call_id, c.encoding_id,
        -- Decoding begins a few tokens before the first difference: a character may lie in as many.
        greatest(c.parent_prefix_len - 4, 0) AS first,
        p.prompt_len + p.output_len AS parent_context_len
    FROM calls AS c
    JOIN calls AS p
        ON c.run_id = p.run_id AND c.rollout_id = p.rollout_id AND c.parent_call_id = p.call_id
    WHERE c.parent_prefix_len < p.prompt_len + p.output_len AND c.encoding_id IS NOT NULL
),
child_text AS (
    SELECT
        broken.*,
        decode(slice(c.prompt_token_ids, broken.first, c.prompt_len), broken.encoding_id) AS text
    FROM broken
    JOIN calls AS c
        ON c.run_id = broken.run_id AND c.rollout_id = broken.rollout_id AND c.call_id = broken.call_id
    WHERE c.prompt_len IS NOT NULL
),
spelled AS (
    -- An id that several calls have may mean either. Compared where it is used, so that no token is read where it is not.
    SELECT run_id, rollout_id, call_id, parent_call_id, min(relation) AS low, max(relation) AS high
    FROM (
        SELECT
            child_text.run_id, child_text.rollout_id, child_text.call_id, child_text.parent_call_id,
            -- Bytes that make no character yet are U+FFFD at the end; the next tokens may complete them.
            CASE
                WHEN starts_with(
                    child_text.text,
                    rtrim(
                        decode(
                            slice(array_concat(p.prompt_token_ids, p.output_token_ids), child_text.first, child_text.parent_context_len),
                            child_text.encoding_id
                        ),
                        chr(65533)
                    )
                ) THEN 'extends'
                WHEN child_text.text IS NOT NULL THEN 'rewrites'
            END AS relation
        FROM child_text
        JOIN calls AS p
            ON p.run_id = child_text.run_id AND p.rollout_id = child_text.rollout_id AND p.call_id = child_text.parent_call_id
    )
    GROUP BY run_id, rollout_id, call_id, parent_call_id
)
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
        WHEN message_relation = 'extends' AND text_relation = 'rewrites' THEN 'template'
        WHEN message_relation = 'extends' THEN 'encoding'
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
            ELSE coalesce(
                text_relation(c.request, p.request, p.output_text, coalesce(p.choice_index, 0)),
                CASE WHEN spelled.low = spelled.high THEN spelled.low END
            )
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
    LEFT JOIN spelled
        ON spelled.run_id = c.run_id AND spelled.rollout_id = c.rollout_id AND spelled.call_id = c.call_id
            AND spelled.parent_call_id = c.parent_call_id
)
