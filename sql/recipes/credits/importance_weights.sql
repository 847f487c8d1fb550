-- @kind credit
-- @doc The importance weight of each token that another policy sampled than the one that trains: truncated (TIS),
--   masked (IcePop, MIS) or clipped, by token, trajectory or geometric mean.
-- @formula w = f(exp(d)), d = trainer logprob - rollout logprob: of the token, its sum or its mean over the trajectory
-- @source verl (rollout_is), slime (TIS, IcePop, MIS, veto)
-- @param level string = token : token, sequence (product over the trajectory) or geometric (its geometric mean)
-- @param mode string = truncate : truncate at upper, clip to lower..upper, mask (0 outside), keep (1 or 0) or none
-- @param upper double = 2 : upper bound
-- @param lower double = null : lower bound; null = none
-- @param veto double = null : a token's ratio below it makes every weight of the trajectory 0; null = none
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
-- @test ratios 2 and 1/4, truncated
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_logprobs": [-1], "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-0.3068528194400547, null]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-2.386294361119891]}
--   param upper=1.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.5, null]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.25]}
-- @test masked outside of the bounds
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_logprobs": [-1], "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-0.3068528194400547, null]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-2.386294361119891]}
--   param mode=mask
--   param lower=0.5
--   param upper=3
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [2.0, null]}
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
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'weight' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    importance_weights(
        logprobs, output_logprobs, token_mask, call_id,
        level => $level, mode => $mode, upper => $upper, lower => $lower, veto => $veto
    ) OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS token_values
FROM logged
