-- @kind credit
-- @doc REINFORCE++ as in SkyRL (reinforce++): token returns, whitened over the tokens of the step. Quirk: the return
--   is reset at every token that does not train, so that no reward crosses an observation. A trajectory is a path of
--   calls through the rollout (view trajectories); the reward of the rollout falls due at its last trained token,
--   that of a call at the call's last.
-- @formula G_t = r_t - kl_loss_coef * kl_t + gamma * G_next, G_next being 0 before an observation; (G - mean) /
--   sqrt(var + 1e-8), sample variance
-- @source SkyRL at commit a9564572, skyrl/backends/skyrl_train/utils/ppo_utils.py,
--   compute_reinforce_plus_plus_outcome_advantage
-- @differs verl/reinforce_plus_plus carries the return over observations and has n + 1e-8 in its means; OpenRLHF and
--   slime discount over them
-- @param gamma double = 1 : discount of one token
-- @param kl_loss_coef double = 0 : taken off the reward of each token for each unit of the divergence, as
--   use_kl_in_reward does
-- @param kl_estimator_type string = k3 : estimator of the divergence from the reference: k1, abs, k2 or k3
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where kl_loss_coef is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where kl_loss_coef is
--   not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check kl_estimator_type is k1, abs, k2 or k3, not {given}
--   SELECT $kl_estimator_type AS given WHERE $kl_estimator_type IS NULL OR $kl_estimator_type NOT IN ('k1', 'abs', 'k2', 'k3')
-- @check there is no signal {name}: import it into token_signals
--   SELECT $logprob_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $kl_loss_coef <> 0 AND found = 0
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
--   WHERE $kl_loss_coef <> 0 AND found = 0
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
-- @test no reward crosses an observation; whitened over four tokens
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.7071067794, 0.0]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.7071067794]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.414213559]}
-- @test a divergence in the reward
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1.0, -2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-0.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-1.0]}
--     {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5, -1.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "reference_logprob", "values": [-0.25]}
--     {"rollout_id": "b", "call_id": "b0", "name": "reference_logprob", "values": [-2.0]}
--   param gamma=0.5
--   param kl_loss_coef=0.5
--   param kl_estimator_type=abs
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.8186154697, -0.07016704026]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.5379473087]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.426729819]}
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
            (name = $logprob_signal AND $kl_loss_coef <> 0)
            OR (name = $reference_signal AND $kl_loss_coef <> 0)
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
valued AS (
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
    FROM valued
),
paid AS (
    SELECT *, CASE WHEN $token_rewards IS NULL THEN due ELSE token_sum(due, token_rewards, call_id) END AS earnings
    FROM placed
),
charged AS (
    SELECT
        *,
        CASE
            WHEN $kl_loss_coef = 0 THEN earnings
            ELSE token_sum(
                earnings,
                token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $kl_estimator_type, unselected => 'zero'
                    ),
                call_id,
                weight => 0.0 - $kl_loss_coef
            )
        END AS rewards
    FROM paid
),
estimated AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        token_returns(rewards, token_mask, call_id, gap_len, gamma => $gamma, observations => 'reset')
            OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS numbers
    FROM charged
),
batch AS (
    SELECT run_id, step, token_moments(numbers, token_mask, call_id) AS moments
    FROM estimated
    GROUP BY run_id, step
)
SELECT
    one.run_id,
    one.rollout_id,
    one.call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    whiten(one.numbers, one.token_mask, batch.moments, one.call_id) AS token_values,
    'batch' AS baseline_scope,
    CAST(one.step AS VARCHAR) AS baseline_key
FROM estimated AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
