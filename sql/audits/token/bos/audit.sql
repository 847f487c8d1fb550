-- @question Does every prompt start with the declared first id, once?
-- @layer encoding
-- @severity error
-- @version 1
-- @outcome rule
-- @scope build
-- @needs calls.prompt_token_ids, calls.parent_prefix_len, samples.token_ids, samples.segments, runs.bos_token_id
-- @examined
--   SELECT call.run_id, count(*) AS examined
--   FROM (SELECT run_id FROM calls WHERE prompt_len IS NOT NULL) AS call
--   JOIN (SELECT DISTINCT run_id FROM runs WHERE bos_token_id IS NOT NULL) AS run ON run.run_id = call.run_id
--   GROUP BY call.run_id
-- @undeclared
--   SELECT call.run_id, 'runs.bos_token_id' AS missing, 'declare the id that starts a sequence, if the encoding has one' AS remedy
--   FROM (SELECT DISTINCT run_id FROM calls WHERE prompt_len IS NOT NULL) AS call
--   LEFT ANTI JOIN (SELECT run_id FROM runs WHERE bos_token_id IS NOT NULL) AS run ON run.run_id = call.run_id
-- @undeclared
--   SELECT run_id, 'calls.prompt_token_ids' AS missing,
--       concat('ask the engine to return prompt token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE prompt_len IS NULL GROUP BY run_id
WITH declared AS (
    SELECT run_id, max(bos_token_id) AS bos_token_id FROM runs WHERE bos_token_id IS NOT NULL GROUP BY run_id
),
-- A prompt that shares its first tokens with an earlier context is as right or wrong as that one, also where that came in another file.
start AS (
    SELECT call.*
    FROM (
        SELECT
            run_id, step, group_id, rollout_id, call_id, prompt_token_ids[1] AS first_id, prompt_token_ids[2] AS second_id
        FROM calls
        WHERE prompt_len IS NOT NULL AND coalesce(parent_prefix_len, 0) < 2
    ) AS call
    LEFT ANTI JOIN (
        SELECT far.run_id, far.rollout_id, far.call_id
        FROM far_parent AS far
        LEFT JOIN far_prefix_breaks AS broken
            ON broken.run_id = far.run_id AND broken.call_id = far.call_id AND broken.rollout_id IS NOT DISTINCT FROM far.rollout_id
        WHERE coalesce(broken.position, 2) >= 2
    ) AS extended
        ON extended.run_id = call.run_id AND extended.call_id = call.call_id AND extended.rollout_id IS NOT DISTINCT FROM call.rollout_id
),
call_fault AS (
    SELECT start.*, declared.bos_token_id, start.first_id IS NOT DISTINCT FROM declared.bos_token_id AS is_doubled
    FROM declared
    JOIN start ON start.run_id = declared.run_id
    WHERE start.first_id IS DISTINCT FROM declared.bos_token_id OR start.second_id = declared.bos_token_id
),
row_start AS (
    SELECT run_id, step, rollout_id, build_id, epoch, micro_batch, rank, row_index, unnest(sequence_starts(token_ids, segments)) AS head
    FROM samples
    WHERE token_ids IS NOT NULL AND NOT coalesce(is_pad, false)
),
row_fault AS (
    SELECT
        row_start.*, declared.bos_token_id, head['first_id'] IS NOT DISTINCT FROM declared.bos_token_id AS is_doubled
    FROM declared
    JOIN row_start ON row_start.run_id = declared.run_id
    WHERE head['first_id'] IS DISTINCT FROM declared.bos_token_id OR head['second_id'] = declared.bos_token_id
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    CASE WHEN is_doubled THEN 1 ELSE 0 END AS position,
    'prompt' AS position_in,
    concat(bos_token_id, ' once') AS expected,
    CASE WHEN is_doubled THEN 'twice' ELSE coalesce(CAST(first_id AS VARCHAR), 'no token') END AS observed,
    concat('the prompt of ', call_id,
        CASE WHEN is_doubled THEN ' starts twice with ' ELSE ' does not start with ' END, bos_token_id) AS message
FROM call_fault
UNION ALL
-- A row whose call's prompt has the same start repeats what was told of the call.
SELECT
    fault.run_id, fault.step, NULL, coalesce(fault.head['rollout_id'], fault.rollout_id), fault.head['call_id'], fault.build_id,
    fault.epoch, fault.micro_batch, fault.rank, fault.row_index, fault.head['position'] + CASE WHEN fault.is_doubled THEN 1 ELSE 0 END, 'row',
    concat(fault.bos_token_id, ' once'),
    CASE WHEN fault.is_doubled THEN 'twice' ELSE CAST(fault.head['first_id'] AS VARCHAR) END,
    concat('the sequence from row token ', fault.head['position'], ' on',
        CASE WHEN fault.is_doubled THEN ' starts twice with ' ELSE ' does not start with ' END, fault.bos_token_id)
FROM row_fault AS fault
LEFT ANTI JOIN (SELECT DISTINCT run_id, call_id, is_doubled FROM call_fault) AS told
    ON told.run_id = fault.run_id AND told.call_id = fault.head['call_id'] AND told.is_doubled = fault.is_doubled
