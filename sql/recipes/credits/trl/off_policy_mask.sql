-- @kind credit
-- @doc TRL's off_policy_mask_threshold: negative advantages of a trajectory that the policy has moved away from
--   become 0. TRL looks again at every step of the optimizer; the signal holds the policy of one. It transforms
--   another credit (--credit): one of a rollout becomes one of its calls. A trajectory is a path of calls through the
--   rollout (view trajectories). Where a logprob of a trained token is unknown, so is whether its trajectory stays:
--   negative advantages become null, of level token the call's whole list.
-- @formula A' = 0 where A < 0 and mean(rollout logprob - trainer logprob) > off_policy_mask_threshold over the
--   trained tokens of the trajectory, else A
-- @source trl at commit f2cd5771, trl/trainer/grpo_trainer.py, get_off_policy_mask
-- @differs slime/opsm has a threshold by default (1e-4); TRL has none and masks nothing
-- @param off_policy_mask_threshold double : greatest mean distance of a sequence whose negative advantages stay
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
-- @test a mean distance of 1/2 is too far, 1/4 is not, and positive advantages stay
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_logprobs": [-1], "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_logprobs": [-1], "output_len": 1}
--     {"call_id": "c0", "rollout_id": "c", "call_index": 0, "output_logprobs": [-1], "output_len": 1}
--     {"call_id": "d0", "rollout_id": "d", "call_index": 0, "output_logprobs": [-1], "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1, -2]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-1.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-1.25]}
--     {"rollout_id": "c", "call_id": "c0", "name": "trainer_logprob", "values": [-9]}
--     {"rollout_id": "d", "call_id": "d0", "name": "trainer_logprob", "values": [null]}
--   credit {"rollout_id": "a", "quantity": "advantage", "level": "rollout", "value": -2}
--     {"rollout_id": "b", "quantity": "advantage", "level": "rollout", "value": -3}
--     {"rollout_id": "c", "quantity": "advantage", "level": "rollout", "value": 4}
--     {"rollout_id": "d", "quantity": "advantage", "level": "rollout", "value": -5}
--   param off_policy_mask_threshold=0.3
--   expect {"rollout_id": "a", "call_id": "a0", "level": "call", "value": 0} {"rollout_id": "a", "call_id": "a1", "value": 0}
--     {"rollout_id": "b", "call_id": "b0", "value": -3} {"rollout_id": "c", "call_id": "c0", "value": 4}
--     {"rollout_id": "d", "call_id": "d0", "value": null}
-- @test tokens one by one
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_logprobs": [-1, -1], "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_logprobs": [-1], "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_logprobs": [-1], "output_len": 1}
--     {"call_id": "c0", "rollout_id": "c", "call_index": 0, "output_logprobs": [-1], "output_len": 1}
--     {"call_id": "d0", "rollout_id": "d", "call_index": 0, "output_logprobs": [-1], "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1, -2]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-1.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-1.25]}
--     {"rollout_id": "c", "call_id": "c0", "name": "trainer_logprob", "values": [-9]}
--     {"rollout_id": "d", "call_id": "d0", "name": "trainer_logprob", "values": [null]}
--   credit {"rollout_id": "a", "call_id": "a0", "quantity": "advantage", "level": "token", "token_values": [3, -2]}
--     {"rollout_id": "b", "call_id": "b0", "quantity": "advantage", "level": "token", "token_values": [-3]}
--   param off_policy_mask_threshold=0.3
--   expect {"rollout_id": "a", "call_id": "a0", "level": "token", "token_values": [3, 0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [-3]}
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
distances AS (
    SELECT
        path.run_id,
        path.rollout_id,
        path.trajectory_id,
        token_moments(
            token_sum(pair.output_logprobs, pair.logprobs, path.call_id, weight => -1),
            path.token_mask,
            path.call_id
        ) AS moments,
        sum(sampled_count(path.output_len, path.token_mask)) AS tokens
    FROM trajectories AS path
    LEFT JOIN (SELECT * FROM pairs WHERE place = 0) AS pair
        ON pair.run_id = path.run_id AND pair.call_id = path.call_id
    GROUP BY path.run_id, path.rollout_id, path.trajectory_id
),
judged AS (
    SELECT
        run_id,
        rollout_id,
        trajectory_id,
        CASE
            WHEN moments['count'] = tokens
            THEN moments['sum'] * power(2.0, moments['exponent']) / greatest(tokens, 1) <= $off_policy_mask_threshold
        END AS is_near
    FROM distances
),
placed AS (
    SELECT credited.*, judged.is_near
    FROM credited_calls AS credited
    JOIN judged
        ON judged.run_id = credited.run_id
        AND judged.rollout_id = credited.rollout_id
        AND judged.trajectory_id = credited.trajectory_id
)
SELECT
    run_id,
    rollout_id,
    call_id,
    quantity,
    level,
    CASE
        WHEN is_near OR value >= 0 THEN value
        WHEN NOT is_near THEN clip(value, low => 0)
    END AS value,
    CASE
        WHEN is_near THEN token_values
        WHEN NOT is_near THEN clip(token_values, low => 0)
    END AS token_values
FROM placed
