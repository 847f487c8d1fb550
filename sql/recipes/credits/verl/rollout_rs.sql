-- @kind credit
-- @doc Rejection as in verl's rollout correction: 1 where every criterion keeps a trained token, 0 where one rejects
--   it.
-- @formula token_k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d; seq_sum, seq_mean and seq_max over the trajectory
-- @source verl/trainer/ppo/rollout_corr_helper.py
-- @param rollout_rs string = token_k1 : criteria with commas between, the whole in quotes
-- @param rollout_rs_threshold string = 0.5_2.0 : one for all, or one each; lower_upper for k1, else an upper bound
-- @param logprob_signal string = trainer_logprob : signal with the logprobs of the policy that trains
-- @param producer string = null : producer of the signal; null = the only one
-- @check there is no signal {name}: import it into token_signals
--   SELECT $logprob_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $logprob_signal AS name
--   FROM token_signals
--   WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @test a ratio of 1/4 is rejected
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_logprobs": [-1], "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-0.3068528194400547, null]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-2.386294361119891]}
--   param rollout_rs_threshold=0.3_3
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.0, null]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.0]}
WITH listed AS (
    SELECT run_id, call_id, 0 AS place, "values" AS numbers
    FROM token_signals
    WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
    UNION ALL
    SELECT call.run_id, call.call_id, 1 AS place, CAST(call.output_logprobs AS DOUBLE[]) AS numbers
    FROM calls AS call
    JOIN (SELECT run_id, call_id FROM trajectories) AS path
        ON path.run_id = call.run_id AND path.call_id = call.call_id
),
pairs AS (
    -- Side by side by sorting, so that no list waits in memory for its partner.
    SELECT
        run_id, call_id, place,
        numbers AS logprobs,
        lead(numbers) OVER (PARTITION BY run_id, call_id ORDER BY place) AS output_logprobs
    FROM listed
),
logged AS (
    SELECT path.*, pair.logprobs, pair.output_logprobs
    FROM trajectories AS path
    JOIN (SELECT DISTINCT run_id, rollout_id FROM reward) AS member
        ON member.run_id = path.run_id AND member.rollout_id = path.rollout_id
    LEFT JOIN (SELECT * FROM pairs WHERE place = 0) AS pair
        ON pair.run_id = path.run_id AND pair.call_id = path.call_id
),
judged AS (
    SELECT
        run_id, rollout_id, call_id, token_mask,
        rejection_mask(
            logprobs, output_logprobs, token_mask, call_id,
            rollout_rs => $rollout_rs, rollout_rs_threshold => $rollout_rs_threshold
        ) OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS kept
    FROM logged
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'weight' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    CAST(kept AS DOUBLE[]) AS token_values
FROM judged
