-- @kind credit
-- @doc The discounted reward from each token on. A trajectory is a path of calls through the rollout (view
--   trajectories); the reward of the rollout falls due at its last trained token, that of a call at the call's last.
-- @formula G_t = r_t + gamma * G_next, over the trained tokens of a trajectory
-- @source arXiv 2501.03262 (the returns of REINFORCE++)
-- @param gamma double = 1 : discount of one token
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param producer string = null : producer of the signal; null = the only one
-- @param observations string = carry : tokens that do not train: carry (no steps) or zero (steps without reward)
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
added AS (
    SELECT rewarded.*, signal.numbers AS more
    FROM rewarded
    LEFT JOIN (
        SELECT run_id, call_id, "values" AS numbers
        FROM token_signals
        WHERE name = $token_rewards AND ($producer IS NULL OR producer = $producer)
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
    FROM added
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'return' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    token_returns(
        CASE WHEN $token_rewards IS NULL THEN rewards ELSE token_sum(rewards, more, call_id) END,
        token_mask, call_id, gap_len, gamma => $gamma, observations => $observations
    ) OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS token_values
FROM placed
