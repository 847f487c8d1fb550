-- @kind credit
-- @doc REINFORCE++ as in verl: token returns carried over observations, whitened over the tokens of the step. A
--   trajectory is a path of calls through the rollout (view trajectories); the reward of the rollout falls due at its
--   last trained token, that of a call at the call's last.
-- @formula G_t = r_t - kl_coef * kl_t + gamma * G_next; (G - mean) / sqrt(var + 1e-8), sample variance, n + 1e-8 in
--   means
-- @source verl, compute_reinforce_plus_plus_outcome_advantage in verl/trainer/ppo/core_algos.py
-- @differs openrlhf/reinforce whitens with the population variance, slime/reinforce_plus_plus not at all
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
-- @test returns, whitened over six tokens
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.607297795, 0.464404201]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.821638195]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [-0.821638195]}
--     {"rollout_id": "b", "call_id": "b1", "token_values": [0.035723403, 1.750446597]}
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
),
batch AS (
    SELECT run_id, step, token_moments("returns", token_mask, call_id) AS moments
    FROM summed
    GROUP BY run_id, step
)
SELECT
    one.run_id,
    one.rollout_id,
    one.call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    whiten(one."returns", one.token_mask, batch.moments, one.call_id, count_eps => 1e-8) AS token_values,
    'batch' AS baseline_scope,
    CAST(one.step AS VARCHAR) AS baseline_key
FROM summed AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
