-- @kind reward
-- @doc Rollouts that were cut off are left out of training and of their groups' baselines, or get the reward 0. A rollout
--   without a reward keeps its own reason; a NaN reward is left as it is.
-- @formula truncated: no reward, with the reason truncated (exclude), or r' = 0 (zero)
-- @source NeMo RL overlong_filtering, rLLM compact filtering (exclude); AReaL mask_no_eos_with_zero (zero)
-- @differs TRL's mask_truncated_completions keeps the masked rollouts in the baseline, which a reward cannot say; stop_properly shrinks their reward
-- @param mode string = exclude : exclude or zero
-- @param truncated expression = status = 'truncated' : condition over rollouts
-- @param finish_reason string = length : finish reason of the last call that also means truncated; null = none
-- @check the mode is exclude or zero, not {mode}
--   SELECT $mode AS mode WHERE $mode IS NULL OR $mode NOT IN ('exclude', 'zero')
-- @test left out
--   reward {"rollout_id": "a", "value": 1, "status": "truncated"} {"rollout_id": "b", "value": 1, "status": "completed"}
--     {"rollout_id": "c", "value": 1} {"rollout_id": "d", "value": null, "status": "truncated", "exclusion_reason": "no_score"}
--   calls {"rollout_id": "c", "call_id": "c0", "call_index": 0, "output_len": 1, "finish_reason": "length"}
--   expect {"rollout_id": "a", "value": null, "exclusion_reason": "truncated"}
--   expect {"rollout_id": "b", "value": 1, "exclusion_reason": null}
--   expect {"rollout_id": "c", "value": null, "exclusion_reason": "truncated"}
--   expect {"rollout_id": "d", "value": null, "exclusion_reason": "no_score"}
-- @test zero, by the status alone
--   reward {"rollout_id": "a", "value": 1, "status": "truncated"} {"rollout_id": "c", "value": 1}
--   calls {"rollout_id": "c", "call_id": "c0", "call_index": 0, "output_len": 1, "finish_reason": "length"}
--   param mode=zero
--   param finish_reason=null
--   expect {"rollout_id": "a", "value": 0} {"rollout_id": "c", "value": 1}
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
    CASE WHEN is_truncated THEN CASE WHEN $mode = 'zero' AND value IS NOT NULL THEN 0.0 END ELSE value END AS value,
    CASE
        WHEN value IS NULL THEN exclusion_reason
        WHEN is_truncated AND $mode = 'exclude' THEN 'truncated'
    END AS exclusion_reason,
    components,
    score_ids
FROM ended
