-- @kind credit
-- @doc Optimal token baseline as in verl, where tokens are compared by position. A trajectory is a path of calls
--   through the rollout (view trajectories); the reward of the rollout falls due at its last trained token, that of a
--   call at the call's last.
-- @formula A_t = G_t - sum(G_t * W_t) / (sum(W_t) + 1e-8) over the trajectories of the group; W_t = cumulative sum of 1
--   - 2 * pi_t + sum(pi^2); a singleton keeps its return
-- @source verl, optimal_token_baseline in verl/trainer/ppo/core_algos.py
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprob of each token
-- @param squares_signal string = sum_pi_squared : signal with the sum of the squared probabilities of the vocabulary
-- @param producer string = null : producer of the signals; null = the only one
-- @param handle_zero_tail boolean = true : whether the baseline is 0 where only the longest trajectory has tokens
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
    WHERE (name = $logprob_signal OR name = $squares_signal)
        AND ($producer IS NULL OR producer = $producer)
),
squared AS (
    SELECT rewarded.*, pair.first_numbers AS logprobs, pair.second_numbers AS pi_squared
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
    FROM squared
),
grouped AS (
    SELECT placed.*, member.group_key
    FROM placed
    JOIN (
        SELECT DISTINCT run_id, rollout_id, CAST($group_key AS VARCHAR) AS group_key FROM reward
    ) AS member
        ON member.run_id = placed.run_id AND member.rollout_id = placed.rollout_id
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
            rewards, token_mask, logprobs, pi_squared, trajectory_id, call_id, gap => gap_len,
            align => 'position', zero_tail => $handle_zero_tail
        ) OVER (PARTITION BY run_id, group_key ORDER BY rollout_id, trajectory_id, call_index, call_id)
    END AS token_values,
    'group' AS baseline_scope,
    group_key AS baseline_key
FROM grouped
