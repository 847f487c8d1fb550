-- @kind credit
-- @doc Bi-level estimation as in RAGEN: over turns with high_level_gamma, then over the tokens of each turn, whitened
--   over the tokens of the step. A trajectory is a path of calls through the rollout (view trajectories); the reward of
--   the rollout falls due at its last trained token, that of a call at the call's last.
-- @formula turns: A = d + high_level_gamma * lam * A_next; tokens: the same with gamma and the turn's return at its
--   end; (A - mean) / sqrt(var + 1e-8)
-- @source RAGEN, compute_bi_level_gae_advantage_return in ragen/trainer/core_algos.py
-- @param gamma double = 1 : discount of one token
-- @param lam double = 1 : weight of later differences
-- @param high_level_gamma double = 0.95 : discount of one turn
-- @param turn_end string = nonzero_reward : where a turn ends: RAGEN at each reward that is not 0; call = with each call
-- @param value_signal string = value : signal with the critic's value of each token
-- @param producer string = null : producer of the signals; null = the only one
-- @check there is no signal {name}: import it into token_signals
--   SELECT $value_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $value_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE found = 0
-- @check call {call_id} has several signals {name}: name one with the parameter producer
--   SELECT call_id, $value_signal AS name
--   FROM token_signals
--   WHERE name = $value_signal AND ($producer IS NULL OR producer = $producer)
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
valued AS (
    SELECT rewarded.*, signal.numbers AS critic
    FROM rewarded
    LEFT JOIN (
        SELECT run_id, call_id, "values" AS numbers
        FROM token_signals
        WHERE name = $value_signal AND ($producer IS NULL OR producer = $producer)
    ) AS signal ON signal.run_id = rewarded.run_id AND signal.call_id = rewarded.call_id
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
    FROM valued
),
estimated AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        bi_level_gae(
            rewards, critic, token_mask, call_id,
            high_level_gamma => $high_level_gamma, gamma => $gamma, lam => $lam, turn_end => $turn_end
        )
            OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS advantages
    FROM placed
),
batch AS (
    SELECT run_id, step, token_moments(advantages, token_mask, call_id) AS moments
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
    whiten(one.advantages, one.token_mask, batch.moments, one.call_id, count_eps => 1e-8) AS token_values,
    'batch' AS baseline_scope,
    CAST(one.step AS VARCHAR) AS baseline_key
FROM estimated AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
