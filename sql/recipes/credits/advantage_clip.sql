-- @kind credit
-- @doc A credit cut at two bounds, which need not lie alike around 0. It transforms another credit (--credit), of any
--   level; a credit that is null stays null.
-- @formula A' = min(max(A, low), high)
-- @source NeMo RL's advantage_clip_low and advantage_clip_high (off by default); ROLL's advantage_clip (symmetric,
--   off); RAGEN's asym_clip has -1 and 3
-- @differs The reward recipe clip cuts rewards, before a baseline or after one; openrlhf's presets cut at 10 after
--   the baseline
-- @param low double = null : least credit; null = none
-- @param high double = null : greatest credit; null = none
-- @check low {low} is above high {high}
--   SELECT $low AS low, $high AS high WHERE $low > $high
-- @test asymmetric bounds
--   credit {"rollout_id": "a", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": 4, "baseline_scope": "group"}
--     {"rollout_id": "b", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": -2}
--     {"rollout_id": "c", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": null}
--   param low=-1
--   param high=3
--   expect {"rollout_id": "a", "value": 3, "level": "rollout", "baseline_scope": "group"} {"rollout_id": "b", "value": -1}
--     {"rollout_id": "c", "value": null}
-- @test every token, with one bound
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 3}
--   credit {"rollout_id": "a", "call_id": "a0", "quantity": "advantage", "level": "token", "token_values": [4, null, -2]}
--   param high=1
--   expect {"rollout_id": "a", "call_id": "a0", "level": "token", "token_values": [1, null, -2]}
-- @test bounds that cross
--   credit {"rollout_id": "a", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": 4, "baseline_scope": "group"}
--     {"rollout_id": "b", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": -2}
--     {"rollout_id": "c", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": null}
--   param low=2
--   param high=1
--   error low 2.0 is above high 1.0
SELECT
    run_id,
    rollout_id,
    call_id,
    COALESCE(quantity, 'advantage') AS quantity,
    COALESCE(
        level,
        CASE
            WHEN token_values IS NOT NULL THEN 'token'
            WHEN call_id IS NOT NULL THEN 'call'
            ELSE 'rollout'
        END
    ) AS level,
    clip(value, $low, $high) AS value,
    clip(token_values, $low, $high) AS token_values,
    baseline_scope,
    baseline_key,
    baseline_count
FROM credit
