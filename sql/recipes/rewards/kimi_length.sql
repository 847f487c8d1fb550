-- @kind reward
-- @doc A reward plus a bonus for the short and less a penalty for the long of a group; a wrong answer gets the
--   penalty but never the bonus. A rollout without a reward is no member. The only member of a group keeps its
--   reward; a NaN or infinite reward is an error. Rollouts for training and for evaluation are groups of their own.
-- @formula l = 0.5 - (len - min len) / (max len - min len) over the group; r' = r + weight * (l if r > threshold else min(0, l)); r' = r where all are as long
-- @source arXiv 2501.12599 (Kimi k1.5), section 2.3.3
-- @differs length_penalty: relative to the longest and scaled by the mean reward
-- @param weight double = 1 : of the bonus and the penalty
-- @param threshold double = 0 : a reward above it is a right answer
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test lengths 10, 20, 30, 40: l is 0.5, 1/6, -1/6, -0.5
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 1} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 1} {"rollout_id": "f", "group_id": "g", "value": null}
--   calls {"rollout_id": "a", "call_id": "a0", "output_len": 10} {"rollout_id": "b", "call_id": "b0", "output_len": 20}
--     {"rollout_id": "c", "call_id": "c0", "output_len": 30} {"rollout_id": "d", "call_id": "d0", "output_len": 40}
--     {"rollout_id": "e", "call_id": "e0", "output_len": 40} {"rollout_id": "f", "call_id": "f0", "output_len": 90}
--   expect {"rollout_id": "a", "value": 1.5} {"rollout_id": "b", "value": 0} {"rollout_id": "c", "value": 0.8333333333333334}
--   expect {"rollout_id": "d", "value": -0.5} {"rollout_id": "e", "value": 1} {"rollout_id": "f", "value": null}
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
        CASE WHEN value IS NOT NULL THEN CAST(COALESCE(lengths.outputs, CAST(0 AS BIGINT)) AS DOUBLE) END AS tokens
    FROM reward
    LEFT JOIN lengths ON lengths.run_id = reward.run_id AND lengths.rollout_id = reward.rollout_id
),
compared AS (
    SELECT
        *,
        min(tokens) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS least,
        max(tokens) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS most
    FROM members
),
placed AS (
    SELECT *, CASE WHEN most > least THEN 0.5 - (tokens - least) / (most - least) ELSE 0.0 END AS l
    FROM compared
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE
        WHEN group_value IS NOT NULL
        THEN value + $weight * CASE WHEN value > $threshold OR l < 0.0 THEN l ELSE 0.0 END
    END AS value,
    COALESCE(exclusion_reason, CASE WHEN value IS NOT NULL AND group_value IS NULL THEN 'no_group' END) AS exclusion_reason
FROM placed
