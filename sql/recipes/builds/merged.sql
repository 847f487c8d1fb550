-- @kind build
-- @doc Calls merged along exact extensions and packed into rows: a call continues its parent's sequence if its prompt begins with
--   the parent's whole context and no earlier call did so; else it starts a sequence whose prompt is all context. One optimizer
--   step for each step of the rollouts (0 where none is recorded), one micro-batch a row, rank 0.
-- @formula every sampled token with a credit trains exactly once; rows are filled best fit decreasing
-- @check rollout {rollout_id}, call {call_id}: a sequence of {tokens} tokens does not fit into max-tokens {max_tokens}
--   SELECT rollout_id, call_id, tokens, $max_tokens AS max_tokens
--   FROM (
--     SELECT call.rollout_id, call.call_id, CAST(call.prompt_len AS BIGINT) + call.output_len AS tokens
--     FROM calls AS call
--     JOIN (SELECT DISTINCT run_id, rollout_id FROM credit WHERE value IS NOT NULL OR token_values IS NOT NULL) AS credited
--       ON credited.run_id = call.run_id AND credited.rollout_id = call.rollout_id
--     WHERE call.output_len > 0
--       AND COALESCE(call.is_trainable, COALESCE(call.kind, 'act') IN ('act', 'compact'))
--       AND (call.prompt_exactness = 'engine' OR ($accept_assumed AND COALESCE(call.prompt_exactness, 'assumed') = 'assumed'))
--       AND (call.output_exactness = 'engine' OR ($accept_assumed AND COALESCE(call.output_exactness, 'assumed') = 'assumed'))
--   )
--   WHERE tokens > $max_tokens
--   ORDER BY tokens DESC, rollout_id, call_id
--   LIMIT 1
-- @test a call that extends its parent continues the sequence, one that does not starts its own
--   credit {"rollout_id": "a", "step": 3, "group_id": "g", "value": 1}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "prompt_token_ids": [1, 2], "output_token_ids": [3]}
--     {"rollout_id": "a", "call_id": "a1", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 2, 3, 4],
--      "output_token_ids": [5]}
--     {"rollout_id": "a", "call_id": "a2", "call_index": 2, "parent_call_id": "a1", "prompt_token_ids": [1, 9],
--      "output_token_ids": [6]}
--   expect {"optimizer_step": 3, "micro_batch": 0, "rank": 0, "row_index": 0, "sequence_index": 0, "rollout_id": "a",
--     "call_ids": ["a0", "a1"]}
--   expect {"row_index": 0, "sequence_index": 1, "rollout_id": "a", "call_ids": ["a2"]}
-- @test the longest sequence goes first into its own row
--   credit {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 0}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "prompt_len": 1, "output_len": 2}
--     {"rollout_id": "b", "call_id": "b0", "call_index": 0, "prompt_len": 2, "output_len": 2}
--   param max_tokens=4
--   expect {"optimizer_step": 0, "row_index": 0, "rollout_id": "b", "call_ids": ["b0"]}
--   expect {"optimizer_step": 0, "row_index": 1, "rollout_id": "a", "call_ids": ["a0"]}
-- @test a sequence that does not fit
--   credit {"rollout_id": "a", "value": 1}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "prompt_len": 3, "output_len": 2}
--   param max_tokens=4
--   error rollout a, call a0: a sequence of 5 tokens does not fit into max-tokens 4
WITH credited AS (
    SELECT run_id, rollout_id, COALESCE(min(step), CAST(0 AS BIGINT)) AS step
    FROM credit
    WHERE value IS NOT NULL OR token_values IS NOT NULL
    GROUP BY run_id, rollout_id
),
counted AS (
    -- An id that several calls of the run have means none of them.
    SELECT
        run_id, rollout_id, call_id, call_index, parent_call_id, parent_prefix_len, prompt_len, output_len,
        prompt_exactness, output_exactness, kind, is_trainable,
        count(*) OVER (PARTITION BY run_id, call_id) AS copies
    FROM calls
),
known AS (
    SELECT
        counted.run_id,
        credited.step,
        counted.rollout_id,
        counted.call_id,
        counted.call_index,
        counted.parent_call_id,
        counted.parent_prefix_len,
        CAST(counted.prompt_len AS BIGINT) + counted.output_len AS context_len,
        -- Only tokens of a trainable call train, but the calls before it in its chain are context that they need.
        counted.output_len > 0
            AND COALESCE(counted.is_trainable, COALESCE(counted.kind, 'act') IN ('act', 'compact')) AS is_useful
    FROM counted
    JOIN credited ON credited.run_id = counted.run_id AND credited.rollout_id = counted.rollout_id
    WHERE counted.copies = 1
        AND counted.call_id IS NOT NULL
        AND counted.prompt_len IS NOT NULL
        AND counted.output_len IS NOT NULL
        AND (counted.prompt_exactness = 'engine'
            OR ($accept_assumed AND COALESCE(counted.prompt_exactness, 'assumed') = 'assumed'))
        AND (counted.output_exactness = 'engine'
            OR ($accept_assumed AND COALESCE(counted.output_exactness, 'assumed') = 'assumed'))
),
linked AS (
    SELECT
        child.*,
        COALESCE(child.parent_prefix_len = parent.context_len, across.call_id IS NOT NULL) AS extends
    FROM known AS child
    LEFT JOIN known AS parent
        ON parent.run_id = child.run_id
        AND parent.rollout_id = child.rollout_id
        AND parent.call_id = child.parent_call_id
    LEFT JOIN extensions_across_files AS across
        ON across.run_id = child.run_id AND across.call_id = child.call_id
),
chained AS (
    SELECT
        run_id, step, rollout_id, call_id, context_len, is_useful,
        chain_root(call_id, parent_call_id, extends)
            OVER (PARTITION BY run_id, rollout_id ORDER BY call_index, call_id) AS root,
        chain_index(call_id, parent_call_id, extends)
            OVER (PARTITION BY run_id, rollout_id ORDER BY call_index, call_id) AS place
    FROM linked
),
ended AS (
    SELECT *, max(CASE WHEN is_useful THEN place END) OVER (PARTITION BY run_id, rollout_id, root) AS last_place
    FROM chained
),
sequences AS (
    SELECT
        step, rollout_id, root,
        array_agg(call_id ORDER BY place) AS call_ids,
        max(context_len) AS tokens
    FROM ended
    WHERE place <= last_place
    GROUP BY step, rollout_id, root
),
packed AS (
    SELECT
        step, rollout_id, root, call_ids,
        pack(tokens, $max_tokens) OVER (PARTITION BY step ORDER BY rollout_id, root) AS bin
    FROM sequences
)
SELECT
    step AS optimizer_step,
    bin AS micro_batch,
    0 AS rank,
    bin AS row_index,
    CAST(row_number() OVER (PARTITION BY step, bin ORDER BY rollout_id, root) AS BIGINT) - 1 AS sequence_index,
    rollout_id,
    call_ids
FROM packed
