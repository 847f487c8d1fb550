-- @kind reward
-- @doc A reward less a penalty on output, input and turns, each relative to the longest of the group and all scaled
--   by the group's mean reward, so that a group that always fails is not penalized. A rollout without a reward is no
--   member. The only member of a group is its own longest; a NaN or infinite reward is an error. Rollouts for
--   training and for evaluation are groups of their own.
-- @formula r' = r - mean(r) * (output_weight * out / max out + input_weight * in / max in + turn_weight * turns / max turns) over the group
-- @source prime-rl linear length penalty, weights 0.25, 0.1, 0.1
-- @differs kimi_length: between the shortest and the longest, whatever the mean reward
-- @param output_weight double = 0.25 : of the output tokens of trainable calls
-- @param input_weight double = 0.1 : of the longest context less those outputs
-- @param turn_weight double = 0.1 : of the number of trainable calls
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test mean 0.5; outputs 10 and 40 of 40, inputs 5 and 10 of 10, one turn each
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": null} {"rollout_id": "d", "value": 3}
--   calls {"rollout_id": "a", "call_id": "a0", "prompt_len": 5, "output_len": 10}
--     {"rollout_id": "b", "call_id": "b0", "prompt_len": 10, "output_len": 40}
--     {"rollout_id": "c", "call_id": "c0", "prompt_len": 99, "output_len": 99}
--   expect {"rollout_id": "a", "value": 0.89375} {"rollout_id": "b", "value": -0.225}
--   expect {"rollout_id": "c", "value": null} {"rollout_id": "d", "value": null, "exclusion_reason": "no_group"}
-- @test a group without calls has no penalty
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   expect {"rollout_id": "a", "value": 1}
WITH lengths AS (
    SELECT
        run_id,
        rollout_id,
        sum(CAST(output_len AS BIGINT)) AS outputs,
        greatest(CAST(0 AS BIGINT), max(CAST(prompt_len AS BIGINT) + output_len) - sum(CAST(output_len AS BIGINT))) AS inputs,
        count(*) AS turns
    FROM calls
    WHERE COALESCE(is_trainable, COALESCE(kind, 'act') IN ('act', 'compact'))
    GROUP BY run_id, rollout_id
),
members AS (
    SELECT
        reward.*,
        $group_key AS group_value,
        CASE WHEN value IS NOT NULL THEN COALESCE(lengths.outputs, CAST(0 AS BIGINT)) END AS outputs,
        CASE WHEN value IS NOT NULL THEN COALESCE(lengths.inputs, CAST(0 AS BIGINT)) END AS inputs,
        CASE WHEN value IS NOT NULL THEN COALESCE(lengths.turns, CAST(0 AS BIGINT)) END AS turns
    FROM reward
    LEFT JOIN lengths ON lengths.run_id = reward.run_id AND lengths.rollout_id = reward.rollout_id
),
compared AS (
    SELECT
        *,
        avg(value) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS mean,
        max(outputs) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS most_outputs,
        max(inputs) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS most_inputs,
        max(turns) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS most_turns
    FROM members
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE
        WHEN group_value IS NOT NULL
        THEN value - mean * (
            CASE WHEN most_outputs > 0 THEN $output_weight * outputs / most_outputs ELSE 0.0 END
            + CASE WHEN most_inputs > 0 THEN $input_weight * inputs / most_inputs ELSE 0.0 END
            + CASE WHEN most_turns > 0 THEN $turn_weight * turns / most_turns ELSE 0.0 END)
    END AS value,
    COALESCE(exclusion_reason, CASE WHEN value IS NOT NULL AND group_value IS NULL THEN 'no_group' END) AS exclusion_reason
FROM compared
