-- @kind credit
-- @doc Generalized advantage estimation as in slime: observations are ordinary steps with the critic's value of their
--   tokens. Those values are in no lake: with lambd 1 they cancel out, with another lambd the tokens before an
--   observation are null. Whitening is an option. slime puts the reward at the last token of the response, whether or
--   not it trains. A rollout whose context broke became several rows (chains of exact extensions, view call_rows),
--   each with the whole reward at its last trained token. The reward of a call falls due at the call's last.
-- @formula A_t = d_t + gamma * lambd * A_next, d_t = r_t - kl_coef * kl_t + gamma * V_next - V_t, over all tokens;
--   with normalize_advantages (A - mean) / sqrt(var + 1e-8), sample variance
-- @source slime at commit 624b824a, utils/ppo_utils.py and compute_advantages_and_returns in
--   backends/megatron_utils/loss.py
-- @differs verl, AReaL and NeMo-RL carry over observations, OpenRLHF gives them value 0
-- @param gamma double = 1 : discount of one token
-- @param lambd double = 1 : weight of later differences
-- @param normalize_advantages boolean = false : whether advantages are whitened over the tokens of the step
-- @param votes string = row : what is a sequence with the whole reward: each row that a rollout became (view
--   call_rows), as the trainer takes it, or each trajectory (rollout)
-- @param kl_coef double = 0 : taken off the reward of each token for each unit of the divergence; low_var_kl is k3
--   cut at 10 both ways
-- @param kl_loss_type string = k1 : estimator of the divergence from the reference: k1, k2, k3 or low_var_kl
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
-- @param value_signal string = value : signal with the critic's value of each token
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where kl_coef is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where kl_coef is not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check votes is {votes}: it must be row or rollout
--   SELECT $votes AS votes WHERE $votes IS NULL OR $votes NOT IN ('row', 'rollout')
-- @check kl_loss_type is k1, k2, k3 or low_var_kl, not {given}
--   SELECT $kl_loss_type AS given WHERE $kl_loss_type IS NULL OR $kl_loss_type NOT IN ('k1', 'k2', 'k3', 'low_var_kl')
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
-- @test an observation is a step whose value cancels out
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 4}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "value", "values": [1.0, 2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "value", "values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "name": "value", "values": [0.5]}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.125, 0.25]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [3.5]}
-- @test whitened, with a divergence in the reward
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
--   param gamma=0.5
--   param kl_coef=0.5
--   param normalize_advantages=true
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [-0.6403570636, -0.169421824]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [-0.651843289]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.461622177]}
WITH sequenced AS (
    SELECT rewarded.*, COALESCE(own.row_id, rewarded.trajectory_id) AS sequence_id
    FROM rewarded_calls AS rewarded
    LEFT JOIN (SELECT run_id, call_id, row_id FROM call_rows WHERE $votes = 'row') AS own
        ON own.run_id = rewarded.run_id AND own.call_id = rewarded.call_id
),
listed AS (
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
            OR (name = $logprob_signal AND $kl_coef <> 0)
            OR (name = $reference_signal AND $kl_coef <> 0)
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
    FROM sequenced AS rewarded
    LEFT JOIN signals AS signal ON signal.run_id = rewarded.run_id AND signal.call_id = rewarded.call_id
),
placed AS (
    SELECT
        *,
        token_sum(
            place_reward($outcome_weight * outcome, token_mask, call_id)
                OVER (PARTITION BY run_id, rollout_id, sequence_id ORDER BY call_index, call_id),
            place_reward($outcome_weight * earned, token_mask, call_id, at => 'call')
                OVER (PARTITION BY run_id, rollout_id, sequence_id ORDER BY call_index, call_id),
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
            WHEN $kl_coef = 0 THEN earnings
            ELSE token_sum(
                earnings,
                token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $kl_loss_type,
                        log_bound => NULL, bound => CASE WHEN $kl_loss_type = 'low_var_kl' THEN 10.0 END, unselected => 'zero'
                    ),
                call_id,
                weight => 0.0 - $kl_coef
            )
        END AS rewards
    FROM paid
),
estimated AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask,
        gae(
            rewards, critic, token_mask, call_id, gap_len,
            gamma => $gamma, lam => $lambd, observations => 'step'
        )
            OVER (PARTITION BY run_id, rollout_id, sequence_id ORDER BY call_index, call_id) AS numbers
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
    CASE WHEN $normalize_advantages THEN whiten(one.numbers, one.token_mask, batch.moments, one.call_id) ELSE one.numbers END AS token_values,
    'batch' AS baseline_scope,
    CAST(one.step AS VARCHAR) AS baseline_key
FROM estimated AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
