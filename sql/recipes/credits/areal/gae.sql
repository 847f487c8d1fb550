-- @kind credit
-- @doc Generalized advantage estimation as in AReaL: carried over observations. Its adv_norm, off by default, is not
--   part of it. A trajectory is a path of calls through the rollout (view trajectories); the reward of the rollout
--   falls due at its last trained token, that of a call at the call's last.
-- @formula r = clip((r + reward_bias) * reward_scaling, -reward_clip, reward_clip); A_t = d_t + discount * gae_lambda
--   * A_next, d_t = r_t - kl_ctl * kl_t + discount * V_next - V_t
-- @source AReaL at commit 4aef98d8, areal/trainer/ppo/actor.py, _compute_advantages
-- @differs verl/gae whitens; nemo-rl/gae may follow the length. KL, value and reward meet in the same way in all
--   three
-- @param discount double = 1 : discount of one token
-- @param gae_lambda double = 1 : weight of later differences
-- @param reward_bias double = 0 : added to the reward of a rollout
-- @param reward_scaling double = 1 : what the reward of a rollout is multiplied with then
-- @param reward_clip double = 20 : bound of it, both ways; null = none
-- @param kl_ctl double = 0 : taken off the reward of each token for each unit of the divergence, which is cut at 10
--   both ways (AReaL's own default is 0.1)
-- @param kl_estimator string = k1 : estimator of the divergence from the reference: k1, k2 or k3
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
-- @param value_signal string = value : signal with the critic's value of each token
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where kl_ctl is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where kl_ctl is not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check kl_estimator is k1, k2 or k3, not {given}
--   SELECT $kl_estimator AS given WHERE $kl_estimator IS NULL OR $kl_estimator NOT IN ('k1', 'k2', 'k3')
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
--   SELECT $logprob_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $kl_ctl <> 0 AND found = 0
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
--   WHERE $kl_ctl <> 0 AND found = 0
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
-- @test differences from the last token on, over an observation
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1.0, 2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0.5]}
--   param discount=0.5
--   param gae_lambda=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.125, 0.5]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [3.5]}
-- @test a divergence in the reward
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1.0, 2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0.5]}
--     {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1.0, -2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-0.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-1.0]}
--     {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5, -1.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "reference_logprob", "values": [-0.25]}
--     {"rollout_id": "b", "call_id": "b0", "name": "reference_logprob", "values": [-2.0]}
--   param discount=0.5
--   param gae_lambda=0.5
--   param kl_ctl=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.0078125, 1.03125]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.125]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [3.0]}
-- @test a reward shaped before
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1.0, 2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0.5]}
--   param discount=0.5
--   param gae_lambda=0.5
--   param reward_bias=0.5
--   param reward_clip=3
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.15625, 0.625]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.5]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [2.5]}
WITH listed AS (
    SELECT DISTINCT run_id, call_id, 0 AS place, CAST(NULL AS DOUBLE[]) AS numbers
    FROM calls
    UNION ALL
    SELECT
        run_id,
        call_id,
        CASE
            WHEN name = $value_signal THEN 1
            WHEN name = $logprob_signal THEN 2
            WHEN name = $reference_signal THEN 3
            WHEN name = $token_rewards THEN 4
        END AS place,
        "values" AS numbers
    FROM token_signals
    WHERE ($producer IS NULL OR producer = $producer)
        AND (
            name = $value_signal
            OR (name = $logprob_signal AND $kl_ctl <> 0)
            OR (name = $reference_signal AND $kl_ctl <> 0)
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
        CASE WHEN place_1 = 1 THEN numbers_1 END AS critic,
        CASE
            WHEN place_1 = 2 THEN numbers_1
            WHEN place_2 = 2 THEN numbers_2
        END AS logprobs,
        CASE
            WHEN place_1 = 3 THEN numbers_1
            WHEN place_2 = 3 THEN numbers_2
            WHEN place_3 = 3 THEN numbers_3
        END AS reference_logprobs,
        CASE
            WHEN place_1 = 4 THEN numbers_1
            WHEN place_2 = 4 THEN numbers_2
            WHEN place_3 = 4 THEN numbers_3
            WHEN place_4 = 4 THEN numbers_4
        END AS token_rewards
    FROM ordered
    WHERE place = 0
),
valued AS (
    SELECT rewarded.*, signal.critic, signal.logprobs, signal.reference_logprobs, signal.token_rewards
    FROM rewarded_calls AS rewarded
    LEFT JOIN signals AS signal ON signal.run_id = rewarded.run_id AND signal.call_id = rewarded.call_id
),
placed AS (
    SELECT
        *,
        token_sum(
            place_reward($outcome_weight * clip(($reward_bias + outcome) * $reward_scaling, 0.0 - $reward_clip, $reward_clip), token_mask, call_id)
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
            WHEN $kl_ctl = 0 THEN earnings
            ELSE token_sum(
                earnings,
                clip(token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $kl_estimator, unselected => 'zero'
                    ), -10, 10),
                call_id,
                weight => 0.0 - $kl_ctl
            )
        END AS rewards
    FROM paid
),
estimated AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        gae(
            rewards, critic, token_mask, call_id, gap_len,
            gamma => $discount, lam => $gae_lambda
        )
            OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS numbers
    FROM charged
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    numbers AS token_values
FROM estimated
