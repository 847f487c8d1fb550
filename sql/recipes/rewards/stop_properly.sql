-- @kind reward
-- @doc A smaller reward for a rollout that was cut off: times a coefficient, or the coefficient itself where it is negative. A
--   rollout without a reward stays without one; a NaN or infinite reward is an error.
-- @formula truncated: r' = coef * r for coef >= 0, coef for coef < 0; else r' = r
-- @source ProRL's stop-properly penalty; NeMo RL takes coef in [0, 1], OpenRLHF also below 0
-- @differs mask_truncated: leaves truncated rollouts out; NeMo RL ignores soft overlong when this is set, OpenRLHF applies both: run both recipes or one
-- @param coef double : factor, or the reward itself where below 0
-- @param truncated expression = status = 'truncated' : condition over rollouts
-- @param finish_reason string = length : finish reason of the last call that also means truncated; null = none
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test a factor
--   reward {"rollout_id": "a", "value": 1, "status": "truncated"} {"rollout_id": "b", "value": 1, "status": "completed"}
--     {"rollout_id": "c", "value": 1} {"rollout_id": "d", "value": 1} {"rollout_id": "e", "value": null, "status": "truncated"}
--   calls {"rollout_id": "c", "call_id": "c0", "call_index": 0, "output_len": 1, "finish_reason": "length"}
--     {"rollout_id": "d", "call_id": "d0", "call_index": 0, "output_len": 1, "finish_reason": "length"}
--     {"rollout_id": "d", "call_id": "d1", "call_index": 1, "output_len": 1, "finish_reason": "stop"}
--   param coef=0.25
--   expect {"rollout_id": "a", "value": 0.25} {"rollout_id": "b", "value": 1} {"rollout_id": "c", "value": 0.25}
--   expect {"rollout_id": "d", "value": 1} {"rollout_id": "e", "value": null}
-- @test a negative one is the reward
--   reward {"rollout_id": "a", "value": 1, "status": "truncated"} {"rollout_id": "b", "value": 1, "status": "failed"}
--   param coef=-0.5
--   expect {"rollout_id": "a", "value": -0.5} {"rollout_id": "b", "value": 1}
WITH last_calls AS (
    SELECT run_id, rollout_id, last_value(finish_reason ORDER BY call_index, call_id) AS finish_reason
    FROM calls
    WHERE COALESCE(is_trainable, COALESCE(kind, 'act') IN ('act', 'compact'))
    GROUP BY run_id, rollout_id
),
ended AS (
    SELECT
        reward.*,
        COALESCE($truncated, false) OR COALESCE(last_calls.finish_reason = $finish_reason, false) AS is_truncated
    FROM reward
    LEFT JOIN last_calls ON last_calls.run_id = reward.run_id AND last_calls.rollout_id = reward.rollout_id
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE
        WHEN value IS NULL OR NOT is_truncated THEN value
        WHEN $coef < 0 THEN $coef
        ELSE $coef * value
    END AS value,
    exclusion_reason,
    components,
    score_ids
FROM ended
