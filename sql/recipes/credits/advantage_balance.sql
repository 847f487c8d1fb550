-- @kind credit
-- @doc A credit with the advantages of one sign made smaller. It transforms another credit (--credit), of any level;
--   a credit that is null stays null.
-- @formula A' = A * (1 - b) for A < 0 and b > 0, A * (1 + b) for A > 0 and b < 0, else A
-- @source openpipe-art 0.5.23, art/preprocessing/pack.py (advantage_balance)
-- @differs art/grpo with packed also divides by the mean size of advantages over trained tokens
-- @param advantage_balance double = 0 : from -1 to 1: above 0 makes negative advantages smaller, below 0 positive
--   ones
-- @check advantage_balance must lie between -1 and 1, not be {given}
--   SELECT $advantage_balance AS given WHERE $advantage_balance IS NULL OR $advantage_balance NOT BETWEEN -1 AND 1
-- @test negative advantages count for three quarters
--   credit {"rollout_id": "a", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": 4, "baseline_scope": "group"}
--     {"rollout_id": "b", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": -2}
--     {"rollout_id": "c", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": null}
--   param advantage_balance=0.25
--   expect {"rollout_id": "a", "value": 4} {"rollout_id": "b", "value": -1.5} {"rollout_id": "c", "value": null}
-- @test positive advantages of tokens count for half
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 3}
--   credit {"rollout_id": "a", "call_id": "a0", "quantity": "advantage", "level": "token", "token_values": [4, null, -2]}
--   param advantage_balance=-0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [2, null, -2]}
-- @test a balance beyond 1
--   credit {"rollout_id": "a", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": 4, "baseline_scope": "group"}
--     {"rollout_id": "b", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": -2}
--     {"rollout_id": "c", "group_id": "g", "quantity": "advantage", "level": "rollout", "value": null}
--   param advantage_balance=2
--   error advantage_balance must lie between -1 and 1, not be 2.0
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
    balance(value, $advantage_balance) AS value,
    balance(token_values, $advantage_balance) AS token_values,
    baseline_scope,
    baseline_key,
    baseline_count
FROM credit
