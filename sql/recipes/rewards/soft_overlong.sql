-- @kind reward
-- @doc A reward less a penalty that grows over the last tokens before a limit. Three published forms agree up to the limit and
--   part beyond it; three definitions of length part as soon as a rollout has more than one call. A rollout without a reward
--   stays without one, one without calls has length 0; a NaN or infinite reward is an error.
-- @formula x = max(0, L - (max_length - buffer)) / buffer; r' = r - min(x, 1) (dapo), r - factor * min(x, 1) (openrlhf), r - factor * x (verl)
-- @source dapo: arXiv 2503.14476, TRL; openrlhf: OpenRLHF; verl: verl's DAPO reward manager, NeMo RL, AReaL, which do not stop at the limit
-- @differs length: output is AReaL's sum of the mask over all turns, span OpenRLHF's from the first to the last action with all between, first NeMo RL's first answer
-- @param max_length long : tokens at which the penalty is full
-- @param buffer long : tokens before it over which the penalty grows
-- @param factor double = 1 : the full penalty; form dapo has none
-- @param form string = dapo : dapo, openrlhf or verl
-- @param length string = output : output, span or first
-- @check max_length {max_length} and buffer {buffer}: the buffer must be above 0 and not above max_length
--   SELECT $max_length AS max_length, $buffer AS buffer WHERE NOT COALESCE($buffer > 0 AND $buffer <= $max_length, false)
-- @check the form is dapo, openrlhf or verl, not {form}
--   SELECT $form AS form WHERE $form IS NULL OR $form NOT IN ('dapo', 'openrlhf', 'verl')
-- @check the length is output, span or first, not {length}
--   SELECT $length AS length WHERE $length IS NULL OR $length NOT IN ('output', 'span', 'first')
-- @check form dapo has no factor: leave it 1, or take form openrlhf
--   SELECT 1 AS one WHERE $form = 'dapo' AND $factor <> 1
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test dapo: nothing before the buffer, -1 from the limit on
--   reward {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 1} {"rollout_id": "c", "value": 1}
--     {"rollout_id": "d", "value": 1} {"rollout_id": "e", "value": null}
--   calls {"rollout_id": "a", "call_id": "a", "output_len": 6} {"rollout_id": "b", "call_id": "b", "output_len": 9}
--     {"rollout_id": "c", "call_id": "c", "output_len": 14} {"rollout_id": "e", "call_id": "e", "output_len": 14}
--   param max_length=10
--   param buffer=4
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 0.25} {"rollout_id": "c", "value": 0}
--   expect {"rollout_id": "d", "value": 1} {"rollout_id": "e", "value": null}
-- @test openrlhf stops at the factor
--   reward {"rollout_id": "b", "value": 1} {"rollout_id": "c", "value": 1}
--   calls {"rollout_id": "b", "call_id": "b", "output_len": 9} {"rollout_id": "c", "call_id": "c", "output_len": 14}
--   param max_length=10
--   param buffer=4
--   param factor=0.5
--   param form=openrlhf
--   expect {"rollout_id": "b", "value": 0.625} {"rollout_id": "c", "value": 0.5}
-- @test verl does not stop
--   reward {"rollout_id": "b", "value": 1} {"rollout_id": "c", "value": 1}
--   calls {"rollout_id": "b", "call_id": "b", "output_len": 9} {"rollout_id": "c", "call_id": "c", "output_len": 14}
--   param max_length=10
--   param buffer=4
--   param factor=0.5
--   param form=verl
--   expect {"rollout_id": "b", "value": 0.625} {"rollout_id": "c", "value": 0}
-- @test the three lengths of two calls with an observation between them: 7, 10 and 4
--   reward {"rollout_id": "a", "value": 0}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "prompt_len": 2, "output_len": 4}
--     {"rollout_id": "a", "call_id": "a1", "call_index": 1, "prompt_len": 9, "output_len": 3}
--   param max_length=20
--   param buffer=20
--   param length=span
--   expect {"rollout_id": "a", "value": -0.5}
-- @test the output alone
--   reward {"rollout_id": "a", "value": 0}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "prompt_len": 2, "output_len": 4}
--     {"rollout_id": "a", "call_id": "a1", "call_index": 1, "prompt_len": 9, "output_len": 3,
--      "sampled_mask": [true, true, false]}
--     {"rollout_id": "a", "call_id": "a2", "call_index": 2, "prompt_len": 9, "output_len": 50, "kind": "judge"}
--   param max_length=20
--   param buffer=20
--   expect {"rollout_id": "a", "value": -0.3}
-- @test the first answer
--   reward {"rollout_id": "a", "value": 0}
--   calls {"rollout_id": "a", "call_id": "a0", "call_index": 0, "prompt_len": 2, "output_len": 4}
--     {"rollout_id": "a", "call_id": "a1", "call_index": 1, "prompt_len": 9, "output_len": 3}
--   param max_length=20
--   param buffer=20
--   param length=first
--   expect {"rollout_id": "a", "value": -0.2}
WITH acts AS (
    SELECT
        run_id, rollout_id, call_id, call_index, prompt_len, output_len,
        CASE
            WHEN action_mask IS NOT NULL THEN COALESCE(array_length(array_positions(action_mask, true)), 0)
            WHEN sampled_mask IS NOT NULL THEN COALESCE(array_length(array_positions(sampled_mask, true)), 0)
            ELSE output_len
        END AS acted
    FROM calls
    WHERE COALESCE(is_trainable, COALESCE(kind, 'act') IN ('act', 'compact'))
),
lengths AS (
    SELECT
        run_id,
        rollout_id,
        sum(CAST(acted AS BIGINT)) AS output,
        last_value(CAST(prompt_len AS BIGINT) + output_len ORDER BY call_index, call_id)
            - first_value(CAST(prompt_len AS BIGINT) ORDER BY call_index, call_id) AS span,
        first_value(CAST(output_len AS BIGINT) ORDER BY call_index, call_id) AS first
    FROM acts
    GROUP BY run_id, rollout_id
),
measured AS (
    SELECT
        reward.*,
        CAST(greatest(CAST(0 AS BIGINT), COALESCE(
            CASE $length WHEN 'output' THEN lengths.output WHEN 'span' THEN lengths.span ELSE lengths.first END,
            CAST(0 AS BIGINT)) - ($max_length - $buffer)) AS DOUBLE) / $buffer AS x
    FROM reward
    LEFT JOIN lengths ON lengths.run_id = reward.run_id AND lengths.rollout_id = reward.rollout_id
)
SELECT
    run_id,
    rollout_id,
    call_id,
    value - $factor * CASE WHEN $form = 'verl' OR x < 1.0 THEN x ELSE 1.0 END AS value,
    exclusion_reason,
    components,
    score_ids
FROM measured
