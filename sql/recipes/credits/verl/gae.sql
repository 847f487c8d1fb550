-- @kind credit
-- @doc Generalized advantage estimation as in verl: carried over observations, whitened over the tokens of the step. A
--   trajectory is a path of calls through the rollout (view trajectories); the reward of the rollout falls due at its
--   last trained token, that of a call at the call's last.
-- @formula A_t = d_t + gamma * lam * A_next, d_t = r_t + gamma * V_next - V_t; (A - mean) / sqrt(var + 1e-8), sample
--   variance, n + 1e-8 in means
-- @source verl, compute_gae_advantage_return in verl/trainer/ppo/core_algos.py
-- @differs areal/gae and nemo-rl/gae do not whiten; openrlhf/gae takes observations for steps; SkyRL, slime and ROLL
--   take them for steps with the values of observation tokens, which no lake holds
-- @param gamma double = 1 : discount of one token
-- @param lam double = 1 : weight of later differences
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
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
-- @test whitened over three tokens
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1, 2]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1]}
--   param gamma=0.5
--   param lam=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.320256282, 1.120896998]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.800640709]}
WITH listed AS (
    SELECT DISTINCT run_id, call_id, 0 AS place, CAST(NULL AS DOUBLE[]) AS numbers
    FROM calls
    UNION ALL
    SELECT
        run_id,
        call_id,
        CASE
            WHEN name = $value_signal THEN 1
            WHEN name = $token_rewards THEN 2
        END AS place,
        "values" AS numbers
    FROM token_signals
    WHERE ($producer IS NULL OR producer = $producer)
        AND (
            name = $value_signal
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
        lead(numbers, 2) OVER calls AS numbers_2
    FROM listed
    WINDOW calls AS (PARTITION BY run_id, call_id ORDER BY place)
),
signals AS (
    SELECT
        run_id,
        call_id,
        CASE WHEN place_1 = 1 THEN numbers_1 END AS critic,
        CASE
            WHEN place_1 = 2 THEN numbers_1
            WHEN place_2 = 2 THEN numbers_2
        END AS token_rewards
    FROM ordered
    WHERE place = 0
),
valued AS (
    SELECT rewarded.*, signal.critic, signal.token_rewards
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
    SELECT *, CASE WHEN $token_rewards IS NULL THEN due ELSE token_sum(due, token_rewards, call_id) END AS rewards
    FROM placed
),
estimated AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        gae(rewards, critic, token_mask, call_id, gap_len, gamma => $gamma, lam => $lam)
            OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS advantages
    FROM paid
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
