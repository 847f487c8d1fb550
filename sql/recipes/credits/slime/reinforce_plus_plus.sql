-- @kind credit
-- @doc REINFORCE++ as in slime: token returns that nothing whitens (its option normalize-advantages does). A trajectory
--   is a path of calls through the rollout (view trajectories); the reward of the rollout falls due at its last trained
--   token, that of a call at the call's last.
-- @formula G_t = r_t - kl_coef * kl_t + gamma * G_next
-- @source slime
-- @differs verl and OpenRLHF whiten
-- @param gamma double = 1 : discount of one token
-- @param kl_coef double = 0 : taken off the reward of each token for each unit of kl_penalty
-- @param kl_penalty string = kl : estimator of the divergence from the reference: kl, abs, mse or low_var_kl
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where kl_coef is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where kl_coef is not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check there is no signal {name}: import it into token_signals
--   SELECT $logprob_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $kl_coef <> 0 AND found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $logprob_signal AS name
--   FROM token_signals
--   WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   GROUP BY run_id, call_id
--   HAVING count(*) > 1
--   ORDER BY run_id, call_id
--   LIMIT 1
-- @check there is no signal {name}: import it into token_signals
--   SELECT $reference_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $reference_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $kl_coef <> 0 AND found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $reference_signal AS name
--   FROM token_signals
--   WHERE name = $reference_signal AND ($producer IS NULL OR producer = $producer)
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
-- @test returns, not whitened
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.25, 2.5]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.0]}
--     {"rollout_id": "b", "call_id": "b1", "token_values": [2.0, 4.0]}
-- @test a divergence of ln 2 at the first token costs half of it
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-0.3068528194400547, -1]}
--     {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1, -1]}
--   param kl_coef=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.6534264097200273, 1.0]}
WITH listed AS (
    SELECT DISTINCT run_id, call_id, 0 AS place, CAST(NULL AS DOUBLE[]) AS numbers
    FROM calls
    UNION ALL
    SELECT
        run_id,
        call_id,
        CASE
            WHEN name = $logprob_signal THEN 1
            WHEN name = $reference_signal THEN 2
            WHEN name = $token_rewards THEN 3
        END AS place,
        "values" AS numbers
    FROM token_signals
    WHERE ($producer IS NULL OR producer = $producer)
        AND (
            (name = $logprob_signal AND $kl_coef <> 0)
            OR (name = $reference_signal AND $kl_coef <> 0)
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
        lead(numbers, 3) OVER calls AS numbers_3
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
        END AS reference_logprobs,
        CASE
            WHEN place_1 = 3 THEN numbers_1
            WHEN place_2 = 3 THEN numbers_2
            WHEN place_3 = 3 THEN numbers_3
        END AS token_rewards
    FROM ordered
    WHERE place = 0
),
referred AS (
    SELECT rewarded.*, signal.logprobs, signal.reference_logprobs, signal.token_rewards
    FROM rewarded_calls AS rewarded
    LEFT JOIN signals AS signal ON signal.run_id = rewarded.run_id AND signal.call_id = rewarded.call_id
),
placed AS (
    SELECT
        *,
        token_sum(
            place_reward($outcome_weight * outcome, token_mask, call_id)
                OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id),
            place_reward($outcome_weight * earned, token_mask, call_id, at => 'call')
                OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id),
            call_id
        ) AS due
    FROM referred
),
paid AS (
    SELECT *, CASE WHEN $token_rewards IS NULL THEN due ELSE token_sum(due, token_rewards, call_id) END AS rewards
    FROM placed
),
summed AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        token_returns(
            CASE
                WHEN $kl_coef = 0 THEN rewards
                ELSE token_sum(
                    rewards,
                    token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $kl_penalty, unselected => 'zero'
                    ),
                    call_id,
                    weight => 0.0 - $kl_coef
                )
            END,
            token_mask, call_id, gamma => $gamma
        ) OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS "returns"
    FROM paid
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    "returns" AS token_values
FROM summed
