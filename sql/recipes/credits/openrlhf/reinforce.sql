-- @kind credit
-- @doc REINFORCE++ as in OpenRLHF: token returns, in which each observation token costs one factor gamma too,
--   whitened over the tokens of the step with the population variance. A trajectory is a path of calls through the
--   rollout (view trajectories); the reward of the rollout falls due at its last trained token, that of a call at the
--   call's last.
-- @formula r = clip(r, low, high); G_t = r_t - init_kl_coef * kl_t + gamma * G_next, observations being steps without
--   reward; (G - mean) / sqrt(max(var, 1e-8)), population variance
-- @source openrlhf at commit 3c3be623, trainer/ppo_utils/experience_maker.py, and compute_reward and
--   compute_approx_kl in models/utils.py
-- @differs verl/reinforce_plus_plus carries over observations and whitens with the sample variance
-- @param gamma double = 1 : discount of one token, observations included
-- @param reward_clip_range_low double = -10 : least reward of a rollout; null = no limit
-- @param reward_clip_range_high double = 10 : greatest reward of a rollout; null = no limit
-- @param no_std_norm boolean = false : true subtracts the mean alone
-- @param init_kl_coef double = 0 : taken off the reward of each token for each unit of the divergence, which is cut
--   at 10 both ways (OpenRLHF's own default is 0.01)
-- @param kl_estimator string = k1 : estimator of the divergence from the reference: k1, k2 or k3
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where init_kl_coef is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where init_kl_coef is
--   not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check kl_estimator is k1, k2 or k3, not {given}
--   SELECT $kl_estimator AS given WHERE $kl_estimator IS NULL OR $kl_estimator NOT IN ('k1', 'k2', 'k3')
-- @check there is no signal {name}: import it into token_signals
--   SELECT $logprob_signal AS name
--   FROM (
--     SELECT count(*) AS found
--     FROM token_signals
--     WHERE name = $logprob_signal AND ($producer IS NULL OR producer = $producer)
--   )
--   WHERE $init_kl_coef <> 0 AND found = 0
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
--   WHERE $init_kl_coef <> 0 AND found = 0
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
-- @test an observation discounts once more; whitened over four tokens
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.8049911732, 0.129837286]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.908861002]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.584014889]}
-- @test a reward beyond the range, and no division
--   reward {"rollout_id": "a", "group_id": "g", "value": 15}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   param gamma=0.5
--   param no_std_norm=true
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-2.9375, -0.6875]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [4.8125]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [-1.1875]}
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
--   param init_kl_coef=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.9618670219, 0.6223845436]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.9769551321]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.31643761]}
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
            (name = $logprob_signal AND $init_kl_coef <> 0)
            OR (name = $reference_signal AND $init_kl_coef <> 0)
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
            place_reward($outcome_weight * clip(outcome, $reward_clip_range_low, $reward_clip_range_high), token_mask, call_id)
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
            WHEN $init_kl_coef = 0 THEN earnings
            ELSE token_sum(
                earnings,
                clip(token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $kl_estimator, unselected => 'zero'
                    ), -10, 10),
                call_id,
                weight => 0.0 - $init_kl_coef
            )
        END AS rewards
    FROM paid
),
estimated AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        token_returns(rewards, token_mask, call_id, gap_len, gamma => $gamma, observations => 'zero')
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
    CASE
        WHEN $no_std_norm
        THEN token_sum(one.numbers, token_fill(batch.moments['sum'] * power(2.0, batch.moments['exponent']) / batch.moments['count'], one.token_mask), one.call_id, weight => -1)
        ELSE whiten(one.numbers, one.token_mask, batch.moments, one.call_id, ddof => 0, eps_at => 'floor')
    END AS token_values,
    'batch' AS baseline_scope,
    CAST(one.step AS VARCHAR) AS baseline_key
FROM estimated AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
