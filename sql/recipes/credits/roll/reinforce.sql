-- @kind credit
-- @doc Token returns as in ROLL's reinforce, which grpo, gigpo and step_reinforce end in too: each observation token
--   costs one factor gamma. Rewards of tokens and advantages may be clipped, advantages whitened. A trajectory is a
--   path of calls through the rollout (view trajectories); the reward of the rollout falls due at its last trained
--   token, that of a call at the call's last.
-- @formula r_t = clip(r_t - init_kl_coef * kl_t, -reward_clip, reward_clip); G_t = r_t + gamma * G_next, observations
--   being steps without reward; clip(G, -advantage_clip, advantage_clip)
-- @source ROLL at commit 8eb27cc2, roll/utils/functionals.py, compute_advantage and compute_token_reward
-- @differs openrlhf/reinforce clips the reward before the divergence and always whitens; verl/reinforce_plus_plus
--   carries over observations
-- @param gamma double = 1 : discount of one token, observations included
-- @param reward_clip double = null : bound of the reward of each token, both ways, after the divergence; null = none
-- @param whiten_advantages boolean = false : whether advantages are whitened over the tokens of the step
-- @param advantage_clip double = null : bound of advantages, both ways, in the end; null = none
-- @param init_kl_coef double = 0 : taken off the reward of each token for each unit of the divergence, as
--   add_token_level_kl does
-- @param kl_penalty string = kl : estimator of the divergence from the reference: kl, abs, mse or k3
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where init_kl_coef is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where init_kl_coef is
--   not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check kl_penalty is kl, abs, mse or k3, not {given}
--   SELECT $kl_penalty AS given WHERE $kl_penalty IS NULL OR $kl_penalty NOT IN ('kl', 'abs', 'mse', 'k3')
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
-- @test an observation discounts once more
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.125, 2.25]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [4.0]}
-- @test clipped rewards and advantages, with a divergence
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
--   param kl_penalty=mse
--   param reward_clip=1.5
--   param advantage_clip=1
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.810546875, 1.0]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.984375]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.0]}
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
            WHEN $init_kl_coef = 0 THEN earnings
            ELSE token_sum(
                earnings,
                token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $kl_penalty, unselected => 'zero'
                    ),
                call_id,
                weight => 0.0 - $init_kl_coef
            )
        END AS rewards
    FROM paid
),
estimated AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        token_returns(clip(rewards, 0.0 - $reward_clip, $reward_clip), token_mask, call_id, gap_len, gamma => $gamma, observations => 'zero')
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
    clip(
        CASE WHEN $whiten_advantages THEN whiten(one.numbers, one.token_mask, batch.moments, one.call_id) ELSE one.numbers END,
        0.0 - $advantage_clip, $advantage_clip
    ) AS token_values,
    'batch' AS baseline_scope,
    CAST(one.step AS VARCHAR) AS baseline_key
FROM estimated AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
