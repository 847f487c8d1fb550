-- @kind credit
-- @doc Generalized advantage estimation as in OpenRLHF: observations are steps with reward and value 0, which leaves
--   phantom differences; then whitened over the tokens of the step with the population variance. A trajectory is a path
--   of calls through the rollout (view trajectories); the reward of the rollout falls due at its last trained token,
--   that of a call at the call's last.
-- @formula A_t = d_t + gamma * lam * A_next, d_t = r_t + gamma * V_next - V_t; (A - mean) / sqrt(max(var, 1e-8))
-- @source OpenRLHF
-- @param gamma double = 1 : discount of one token
-- @param lam double = 1 : weight of later differences
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
        gae(rewards, critic, token_mask, call_id, gap_len, gamma => $gamma, lam => $lam, observations => 'zero')
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
    whiten(one.advantages, one.token_mask, batch.moments, one.call_id, ddof => 0, eps_at => 'floor') AS token_values,
    'batch' AS baseline_scope,
    CAST(one.step AS VARCHAR) AS baseline_key
FROM estimated AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
