-- @question Does every call start with its parent's context, and every trained token follow the tokens that its call saw?
-- @layer encoding
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs calls.parent_call_id, calls.prompt_token_ids, calls.break_reason, samples.segments
-- @examined
--   SELECT run_id, count(*) AS examined
--   FROM calls WHERE parent_call_id IS NOT NULL AND prompt_len IS NOT NULL AND break_reason IS NULL GROUP BY run_id
--   UNION ALL
--   SELECT run_id, count(*) AS examined
--   FROM samples WHERE segments IS NOT NULL AND token_ids IS NOT NULL AND NOT coalesce(is_pad, false) GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.parent_call_id' AS missing,
--       concat('name the call that each one continues; ', count(*), ' calls after a rollout''s first name none') AS remedy
--   FROM calls WHERE call_index > 0 AND parent_call_id IS NULL GROUP BY run_id
-- @undeclared
--   SELECT child.run_id, 'calls.call_id' AS missing,
--       concat('give each call an id of its own; ', count(*), ' calls name a parent that several calls with other tokens are') AS remedy
--   FROM calls AS child
--   JOIN (
--       SELECT run_id, rollout_id, call_id FROM calls
--       GROUP BY run_id, rollout_id, call_id HAVING count(DISTINCT concat(prompt_digest, '/', output_digest)) > 1
--   ) AS parent
--       ON parent.run_id = child.run_id AND parent.rollout_id = child.rollout_id AND parent.call_id = child.parent_call_id
--   WHERE child.break_reason IS NULL
--   GROUP BY child.run_id
-- @undeclared
--   SELECT run_id, 'calls.prompt_token_ids' AS missing,
--       concat('ask the engine to return prompt token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE prompt_len IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH unclear AS (
    -- An id that several calls of a rollout have means none of them, unless they hold the same tokens.
    SELECT call.run_id, call.rollout_id, call.call_id
    FROM doubled_call AS twice
    JOIN calls AS call ON call.run_id = twice.run_id AND call.call_id = twice.call_id
    GROUP BY call.run_id, call.rollout_id, call.call_id
    HAVING count(DISTINCT concat(call.prompt_digest, '/', call.output_digest)) > 1
)
-- The same call in two imports is one call here: rollout/duplicate tells of its copies.
SELECT DISTINCT
    child.run_id, child.step, child.group_id, child.rollout_id, child.call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    child.parent_prefix_len AS position,
    'prompt' AS position_in,
    concat('the ', parent.prompt_len + parent.output_len, ' tokens of ', child.parent_call_id, '''s prompt and output') AS expected,
    concat('the first ', child.parent_prefix_len, ' of them') AS observed,
    concat('the prompt of ', child.call_id, ' leaves the context of its parent ', child.parent_call_id, ' at token ',
        child.parent_prefix_len, ' of ', parent.prompt_len + parent.output_len, ', and declares no break') AS message
FROM calls AS child
JOIN calls AS parent
    ON parent.run_id = child.run_id AND parent.rollout_id = child.rollout_id AND parent.call_id = child.parent_call_id
LEFT ANTI JOIN unclear
    ON unclear.run_id = child.run_id AND unclear.rollout_id = child.rollout_id AND unclear.call_id = child.parent_call_id
WHERE child.break_reason IS NULL AND child.parent_prefix_len < parent.prompt_len + parent.output_len
UNION ALL
SELECT DISTINCT
    far.run_id, link.step, link.group_id, far.rollout_id, far.call_id, NULL, NULL, NULL, NULL, NULL, far.position, 'prompt',
    concat('the ', far.parent_len, ' tokens of ', link.parent_call_id, '''s prompt and output'),
    concat('the first ', far.position, ' of them'),
    concat('the prompt of ', far.call_id, ' leaves the context of its parent ', link.parent_call_id, ' at token ', far.position,
        ' of ', far.parent_len, ', and declares no break')
FROM far_prefix_breaks AS far
JOIN calls AS link ON link.run_id = far.run_id AND link.call_id = far.call_id AND link.rollout_id IS NOT DISTINCT FROM far.rollout_id
UNION ALL
SELECT
    run_id, step, NULL, rollout_id, call_id, build_id, epoch, micro_batch, rank, row_index, position, 'row',
    concat('the prompt of ', call_id, ' and its output so far'),
    'another token, or too few or too many',
    concat('token ', trained_at, ' of the row is trained as an output of ', call_id, ', but from token ', position,
        ' on the row is not what the call saw')
FROM row_prefix_breaks
