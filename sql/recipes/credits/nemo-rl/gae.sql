-- @kind credit
-- @doc Generalized advantage estimation as in NeMo RL: carried over observations, whitened over the tokens of the
--   step. Advantages and returns may have a lambda each (decoupled GAE); that of advantages may follow the length. A
--   trajectory is a path of calls through the rollout (view trajectories); the reward of the rollout falls due at its
--   last trained token, that of a call at the call's last.
-- @formula A_t = d_t + gae_gamma * lambda * A_next, d_t = r_t - reference_policy_kl_penalty * kl_t + gae_gamma *
--   V_next - V_t; lambda = 1 - 1 / (length_adaptive_alpha * tokens) where that is above 0; (A - mean) / sqrt(var +
--   1e-8), sample variance, n + 1e-8 in means; returns A + V are not whitened
-- @source NeMo RL at commit 7ea279ab, nemo_rl/algorithms/advantage_estimator.py, GeneralizedAdvantageEstimator;
--   defaults of examples/configs/ppo_math_1B.yaml; VAPO, arXiv 2504.05118
-- @differs gae_lambda is 0.95 (verl, AReaL: 1). areal/gae does not whiten; verl/gae has one lambda
-- @param gae_gamma double = 1 : discount of one token
-- @param gae_lambda double = 0.95 : weight of later differences
-- @param gae_lambda_policy double = null : that of advantages; null = gae_lambda
-- @param gae_lambda_value double = null : that of returns; null = gae_lambda
-- @param length_adaptive_alpha double = 0 : above 0, the lambda of advantages follows the length
-- @param normalize_advantages boolean = true : whether advantages are whitened over the tokens of the step
-- @param output string = advantage : advantage, or return (what the critic learns)
-- @param reference_policy_kl_penalty double = 0 : taken off the reward of each token for each unit of the divergence,
--   which is cut at 10 both ways, as use_kl_in_reward does
-- @param reference_policy_kl_type string = k3 : estimator of the divergence from the reference: k1, k2 or k3
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
-- @param value_signal string = value : signal with the critic's value of each token
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where
--   reference_policy_kl_penalty is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where
--   reference_policy_kl_penalty is not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check output is advantage or return, not {output}
--   SELECT $output AS output WHERE $output IS NULL OR $output NOT IN ('advantage', 'return')
-- @check reference_policy_kl_type is k1, k2 or k3, not {given}
--   SELECT $reference_policy_kl_type AS given WHERE $reference_policy_kl_type IS NULL OR $reference_policy_kl_type NOT IN ('k1', 'k2', 'k3')
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
--   WHERE $reference_policy_kl_penalty <> 0 AND found = 0
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
--   WHERE $reference_policy_kl_penalty <> 0 AND found = 0
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
-- @test differences from the last token on, over an observation; whitened
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1.0, 2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0.5]}
--   param gae_gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.5011897332, -0.3411139244]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.646020227]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.488323891]}
-- @test a lambda for advantages alone, not whitened
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1.0, 2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0.5]}
--   param gae_gamma=0.5
--   param gae_lambda_policy=0.5
--   param normalize_advantages=false
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.125, 0.5]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [3.5]}
-- @test returns with their own lambda
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1.0, 2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0.5]}
--   param gae_gamma=0.5
--   param gae_lambda_value=0.25
--   param output=return
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.0625, 2.5]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [4.0]}
-- @test lambda 1 - 1 / (0.5 * 3) for three tokens, 0 for one
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1.0, 2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0.5]}
--   param gae_gamma=0.5
--   param length_adaptive_alpha=0.5
--   param normalize_advantages=false
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.08333333333, 0.5]}
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
--   param gae_gamma=0.5
--   param gae_lambda=0.5
--   param normalize_advantages=false
--   param reference_policy_kl_penalty=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.01911385269, 0.1366059087]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.01701270834]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [3.316060279]}
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
            OR (name = $logprob_signal AND $reference_policy_kl_penalty <> 0)
            OR (name = $reference_signal AND $reference_policy_kl_penalty <> 0)
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
            WHEN $reference_policy_kl_penalty = 0 THEN earnings
            ELSE token_sum(
                earnings,
                clip(token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $reference_policy_kl_type, unselected => 'zero'
                    ), -10, 10),
                call_id,
                weight => 0.0 - $reference_policy_kl_penalty
            )
        END AS rewards
    FROM paid
),
estimated AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        gae(
            rewards, critic, token_mask, call_id, gap_len,
            gamma => $gae_gamma, lam => CASE
                WHEN $output = 'return' THEN COALESCE($gae_lambda_value, $gae_lambda)
                ELSE COALESCE($gae_lambda_policy, $gae_lambda)
            END,
            lam_alpha => CASE
                WHEN $output = 'advantage' AND $length_adaptive_alpha > 0 THEN $length_adaptive_alpha
            END,
            output => $output
        )
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
    $output AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    CASE
        WHEN $normalize_advantages AND $output = 'advantage'
        THEN whiten(one.numbers, one.token_mask, batch.moments, one.call_id, count_eps => 1e-8)
        ELSE one.numbers
    END AS token_values,
    'batch' AS baseline_scope,
    CAST(one.step AS VARCHAR) AS baseline_key
FROM estimated AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
