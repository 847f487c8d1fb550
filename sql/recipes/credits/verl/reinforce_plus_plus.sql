-- @kind credit
-- @doc REINFORCE++ as in verl: token returns carried over observations, whitened over the tokens of the step. A
--   trajectory is a path of calls through the rollout (view trajectories); the reward of the rollout falls due at its
--   last trained token, that of a call at the call's last.
-- @formula G_t = r_t - kl_coef * kl_t + gamma * G_next; (G - mean) / sqrt(var + 1e-8), sample variance, n + 1e-8 in
--   means
-- @source verl, compute_reinforce_plus_plus_outcome_advantage in verl/trainer/ppo/core_algos.py
-- @param gamma double = 1 : discount of one token
-- @param kl_coef double = 0 : taken off the reward of each token for each unit of kl_penalty
-- @param kl_penalty string = kl : estimator of the divergence from the reference: kl, abs, mse or low_var_kl
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
WITH rewarded AS (
    SELECT
        path.*,
        whole.outcome,
        CASE WHEN own.call_id IS NULL THEN 0.0 ELSE own.value END AS earned
    FROM trajectories AS path
    JOIN (
        -- Without a reward of the whole rollout its calls have earned all there is.
        SELECT
            run_id,
            rollout_id,
            CASE
                WHEN count(*) FILTER (WHERE call_id IS NULL) = 0 THEN 0.0
                ELSE max(value) FILTER (WHERE call_id IS NULL)
            END AS outcome
        FROM reward
        GROUP BY run_id, rollout_id
    ) AS whole ON whole.run_id = path.run_id AND whole.rollout_id = path.rollout_id
    LEFT JOIN (SELECT run_id, call_id, value FROM reward WHERE call_id IS NOT NULL) AS own
        ON own.run_id = path.run_id AND own.call_id = path.call_id
),
pairs AS (
    SELECT
        run_id, call_id, name,
        "values" AS first_numbers,
        lead("values") OVER (PARTITION BY run_id, call_id ORDER BY name <> $logprob_signal) AS second_numbers
    FROM token_signals
    WHERE (name = $logprob_signal OR name = $reference_signal)
        AND ($producer IS NULL OR producer = $producer) AND $kl_coef <> 0
),
referred AS (
    SELECT rewarded.*, pair.first_numbers AS logprobs, pair.second_numbers AS reference_logprobs
    FROM rewarded
    LEFT JOIN (SELECT * FROM pairs WHERE name = $logprob_signal) AS pair
        ON pair.run_id = rewarded.run_id AND pair.call_id = rewarded.call_id
),
placed AS (
    SELECT
        *,
        token_sum(
            place_reward(outcome, token_mask, call_id)
                OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id),
            place_reward(earned, token_mask, call_id, at => 'call')
                OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id),
            call_id
        ) AS rewards
    FROM referred
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
    FROM placed
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
