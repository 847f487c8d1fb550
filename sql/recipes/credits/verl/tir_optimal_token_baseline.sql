-- @kind credit
-- @doc Optimal token baseline over turns as in verl: tokens are compared by their number among the trained ones. A
--   rollout whose context broke became several rows (chains of exact extensions, view call_rows), each with the whole
--   reward at its last trained token. The reward of a call falls due at the call's last.
-- @formula A_t = G_t - sum(G_t * W_t) / (sum(W_t) + epsilon) over the trajectories of the group; W_t = cumulative sum of (1
--   - 2 * pi_t + sum(pi^2)) * weight^2; a singleton keeps its return
-- @source verl at commit 1dda039b, tir_optimal_token_baseline in verl/trainer/ppo/core_algos.py
-- @differs optimal_token_baseline compares by position, observations included
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprob of each token
-- @param squares_signal string = sum_pi_squared : signal with the sum of the squared probabilities of the vocabulary
-- @param producer string = null : producer of the signals; null = the only one
-- @param rollout_is_weights string = null : signal with the importance weight of each token, whose square its path weight is
--   multiplied with; null = none
-- @param epsilon double = 1e-8 : added to the sum of path weights
-- @param votes string = row : what is a sequence with the whole reward: each row that a rollout became (view
--   call_rows), as the trainer takes it, or each trajectory (rollout)
-- @param handle_zero_tail boolean = true : whether the baseline is 0 where only the longest trajectory has tokens
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
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
-- @check there is no signal {name}: import it into token_signals
--   SELECT $squares_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $squares_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $squares_signal AS name
--   FROM token_signals
--   WHERE name = $squares_signal AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @check there is no signal {name}: import it into token_signals
--   SELECT $rollout_is_weights AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $rollout_is_weights AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $rollout_is_weights IS NOT NULL AND found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $rollout_is_weights AS name
--   FROM token_signals
--   WHERE name = $rollout_is_weights AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @check there is no signal {name}: import it into token_signals
--   SELECT $token_rewards AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $token_rewards AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $token_rewards IS NOT NULL AND found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $token_rewards AS name
--   FROM token_signals
--   WHERE name = $token_rewards AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @test equal probabilities: the mean return, and nothing beyond the second longest
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 3}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 2}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1, -1, -1]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-1, -1]}
--     {"rollout_id": "a", "call_id": "a0", "name": "sum_pi_squared", "values": [0.5, 0.5, 0.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "sum_pi_squared", "values": [0.5, 0.5]}
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.5, 0.5, 1.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [-0.5, -0.5]}
-- @test importance weights count by their square
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 3}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-0.6931471805599453]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-0.6931471805599453]}
--     {"rollout_id": "a", "call_id": "a0", "name": "sum_pi_squared", "values": [0.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "sum_pi_squared", "values": [0.5]}
--     {"rollout_id": "a", "call_id": "a0", "name": "weights", "values": [2]}
--     {"rollout_id": "b", "call_id": "b0", "name": "weights", "values": [0.5]}
--   param rollout_is_weights=weights
--   param epsilon=0
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.11764705882352944]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.8823529411764706]}
WITH sequenced AS (
    SELECT rewarded.*, COALESCE(own.row_id, rewarded.trajectory_id) AS sequence_id
    FROM rewarded_calls AS rewarded
    LEFT JOIN (SELECT run_id, call_id, row_id FROM call_rows WHERE $votes = 'row') AS own
        ON own.run_id = rewarded.run_id AND own.call_id = rewarded.call_id
),
listed AS (
    SELECT DISTINCT run_id, call_id, 0 AS place, CAST(NULL AS DOUBLE[]) AS numbers
    FROM calls
    UNION ALL
    SELECT
        run_id,
        call_id,
        CASE
            WHEN name = $logprob_signal THEN 1
            WHEN name = $squares_signal THEN 2
            WHEN name = $rollout_is_weights THEN 3
            WHEN name = $token_rewards THEN 4
        END AS place,
        "values" AS numbers
    FROM token_signals
    WHERE ($producer IS NULL OR producer = $producer)
        AND (
            name = $logprob_signal
            OR name = $squares_signal
            OR name = $rollout_is_weights
            OR name = $token_rewards
        )
),
ordered AS (
    -- Side by side by sorting, so that no list waits in memory for its partner.
    SELECT
        run_id,
        call_id,
        place,
        lead(place, 1) OVER calls AS place_1,
        lead(numbers, 1) OVER calls AS numbers_1,
        lead(place, 2) OVER calls AS place_2,
        lead(numbers, 2) OVER calls AS numbers_2,
        lead(place, 3) OVER calls AS place_3,
        lead(numbers, 3) OVER calls AS numbers_3,
        lead(place, 4) OVER calls AS place_4,
        lead(numbers, 4) OVER calls AS numbers_4
    FROM listed
    WINDOW calls AS (PARTITION BY run_id, call_id ORDER BY place)
),
signals AS (
    SELECT
        run_id,
        call_id,
        CASE WHEN place_1 = 1 THEN numbers_1 END AS logprobs,
        CASE
            WHEN place_1 = 2 THEN numbers_1
            WHEN place_2 = 2 THEN numbers_2
        END AS pi_squared,
        CASE
            WHEN place_1 = 3 THEN numbers_1
            WHEN place_2 = 3 THEN numbers_2
            WHEN place_3 = 3 THEN numbers_3
        END AS is_weights,
        CASE
            WHEN place_1 = 4 THEN numbers_1
            WHEN place_2 = 4 THEN numbers_2
            WHEN place_3 = 4 THEN numbers_3
            WHEN place_4 = 4 THEN numbers_4
        END AS token_rewards
    FROM ordered
    WHERE place = 0
),
squared AS (
    SELECT rewarded.*, signal.logprobs, signal.pi_squared, signal.is_weights, signal.token_rewards
    FROM sequenced AS rewarded
    LEFT JOIN signals AS signal ON signal.run_id = rewarded.run_id AND signal.call_id = rewarded.call_id
),
placed AS (
    SELECT
        *,
        token_sum(
            place_reward($outcome_weight * outcome, token_mask, call_id)
                OVER (PARTITION BY run_id, rollout_id, sequence_id ORDER BY call_index, call_id),
            place_reward($outcome_weight * earned, token_mask, call_id, at => 'call')
                OVER (PARTITION BY run_id, rollout_id, sequence_id ORDER BY call_index, call_id),
            call_id
        ) AS due
    FROM squared
),
paid AS (
    SELECT *, CASE WHEN $token_rewards IS NULL THEN due ELSE token_sum(due, token_rewards, call_id) END AS rewards
    FROM placed
),
grouped AS (
    SELECT paid.*, member.group_key
    FROM paid
    JOIN (
        SELECT DISTINCT run_id, rollout_id, CAST($group_key AS VARCHAR) AS group_key FROM reward
    ) AS member
        ON member.run_id = paid.run_id AND member.rollout_id = paid.rollout_id
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    -- A rollout without a group is compared with nothing.
    CASE
        WHEN group_key IS NOT NULL
        THEN optimal_token_baseline(
            rewards, token_mask, logprobs, pi_squared, sequence_id, call_id, weights => is_weights, gap => gap_len,
            eps => $epsilon, align => 'selected', zero_tail => $handle_zero_tail
        ) OVER (PARTITION BY run_id, group_key ORDER BY rollout_id, sequence_id, call_index, call_id)
    END AS token_values,
    'group' AS baseline_scope,
    group_key AS baseline_key
FROM grouped
