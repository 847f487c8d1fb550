-- @kind credit
-- @doc OpenRLHF's reinforce_baseline: reward less the group's mean, clipped, then normalized over the trained tokens of
--   the batch. A rollout without a reward is no member of its group and gets no credit; one without a group has
--   nothing to be compared with.
-- @formula a = clip(r - mean, low, high); A = (a - m) / sqrt(max(v, 1e-8)), m and v mean and population variance of a over
--   trained tokens
-- @source openrlhf at commit 3c3be623, trainer/ppo_utils/experience_maker.py, compute_reward and compute_approx_kl in models/utils.py
-- @differs Population variance, clamped at 1e-8 (verl/reinforce_plus_plus_baseline: sample variance plus 1e-8). Clips after
--   the baseline, to 10 by default (TRL RLOO: before it, off; ROLL: after normalization, off).
-- @param reward_clip_range_low double = -10 : least shaped reward; null = no limit
-- @param reward_clip_range_high double = 10 : greatest shaped reward; null = no limit
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @param init_kl_coef double = 0 : taken off each token for each unit of the divergence, which is cut at 10 both
--   ways; above 0 the credit is of level token (OpenRLHF's own default is 0.01)
-- @param kl_estimator string = k1 : estimator of the divergence from the reference: k1, k2 or k3
-- @param logprob_signal string = trainer_logprob : signal with the policy's logprobs, where init_kl_coef is not 0
-- @param reference_signal string = reference_logprob : signal with the reference's logprobs, where init_kl_coef is
--   not 0
-- @param producer string = null : producer of the signals; null = the only one
-- @check rollout {rollout_id} of run {run_id} has a reward, but no call with a known output: import its calls
--   SELECT reward.run_id, reward.rollout_id
--   FROM reward
--   LEFT JOIN (SELECT DISTINCT run_id AS known_run, rollout_id AS known_rollout FROM calls WHERE output_len IS NOT NULL) AS known
--     ON known.known_run = reward.run_id AND known.known_rollout = reward.rollout_id
--   WHERE reward.call_id IS NULL AND reward.value IS NOT NULL AND known.known_rollout IS NULL
--   ORDER BY reward.run_id, reward.rollout_id
--   LIMIT 1
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
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   calls {"call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 200}
--     {"call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 400}
--     {"call_id": "c", "rollout_id": "c", "call_index": 0, "output_len": 100}
--     {"call_id": "d", "rollout_id": "d", "call_index": 0, "output_len": 300}
--     {"call_id": "e", "rollout_id": "e", "call_index": 0, "output_len": 10}
--     {"call_id": "f", "rollout_id": "f", "call_index": 0, "output_len": 10}
--     {"call_id": "h", "rollout_id": "h", "call_index": 0, "output_len": 10}
--   expect {"rollout_id": "a", "value": 2.0256224532157883} {"rollout_id": "b", "value": -0.5110232936684207}
--     {"rollout_id": "c", "value": -0.5110232936684207} {"rollout_id": "d", "value": -0.5110232936684207}
--     {"rollout_id": "e", "value": 0.1231381430526315} {"rollout_id": "f", "value": 0.1231381430526315}
--     {"rollout_id": "h", "value": 0.1231381430526315}
-- @test a divergence counts from its token on, whitened over four tokens
--   reward {"rollout_id": "a", "group_id": "g", "value": 4} {"rollout_id": "b", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7, 7]}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "prompt_token_ids": [1, 7, 7, 9], "output_token_ids": [7]}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [7]}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "trainer_logprob", "values": [-1.0, -2.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "trainer_logprob", "values": [-0.5]}
--     {"rollout_id": "b", "call_id": "b0", "name": "trainer_logprob", "values": [-1.0]}
--     {"rollout_id": "a", "call_id": "a0", "name": "reference_logprob", "values": [-1.5, -1.0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "reference_logprob", "values": [-0.25]}
--     {"rollout_id": "b", "call_id": "b0", "name": "reference_logprob", "values": [-2.0]}
--   param init_kl_coef=0.5
--   param kl_estimator=k2
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.4807213936, 0.5279087696]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.7166582739]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [-1.725288437]}
-- @test an output without tokens counts in the group, and no token in the batch
--   reward {"rollout_id": "a", "group_id": "g", "value": 3} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 3}
--   calls {"call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 2}
--     {"call_id": "c", "rollout_id": "c", "call_index": 0, "output_len": 0, "output_token_ids": []}
--   expect {"rollout_id": "a", "value": 1.0} {"rollout_id": "b", "value": -1.0} {"rollout_id": "c", "value": 1.0}
WITH compared AS (
    SELECT
        reward.*,
        COALESCE(known.trained_tokens, 0) AS trained_tokens,
        CASE WHEN $group_key IS NOT NULL THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key) END AS plain,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
    FROM (SELECT * FROM reward WHERE call_id IS NULL) AS reward
    LEFT JOIN (SELECT run_id AS known_run, rollout_id AS known_rollout, trained_tokens FROM rollout_rows) AS known
        ON known.known_run = run_id AND known.known_rollout = rollout_id
),
centered AS (
    SELECT
        *,
        CASE
            WHEN plain < $reward_clip_range_low THEN $reward_clip_range_low
            WHEN plain > $reward_clip_range_high THEN $reward_clip_range_high
            ELSE plain
        END AS centered
    FROM compared
),
whitened AS (
    SELECT
        *,
        centered - rollout_mean(centered, rollout_id, weight => trained_tokens) OVER (PARTITION BY run_id, $batch_key) AS difference,
        rollout_std(centered, rollout_id, weight => trained_tokens, ddof => 0) OVER (PARTITION BY run_id, $batch_key) AS std
    FROM centered
),
of_rollouts AS (
    SELECT
        run_id,
        rollout_id,
        difference / greatest(std, 1e-4) AS advantage,
        centered,
        'group' AS baseline_scope,
        baseline_key,
        baseline_count
    FROM whitened
),
calls_of_rollouts AS (
    SELECT path.*, whole.centered AS advantage, whole.baseline_scope, whole.baseline_key, whole.baseline_count
    FROM trajectories AS path
    JOIN of_rollouts AS whole ON whole.run_id = path.run_id AND whole.rollout_id = path.rollout_id
    WHERE NOT ($init_kl_coef = 0)
),
listed AS (
    SELECT DISTINCT run_id, call_id, 0 AS place, CAST(NULL AS DOUBLE[]) AS numbers
    FROM calls
    UNION ALL
    SELECT
        run_id,
        call_id,
        CASE
            WHEN name = $logprob_signal THEN 1
            WHEN name = $reference_signal THEN 2
        END AS place,
        "values" AS numbers
    FROM token_signals
    WHERE ($producer IS NULL OR producer = $producer)
        AND (
            (name = $logprob_signal AND $init_kl_coef <> 0)
            OR (name = $reference_signal AND $init_kl_coef <> 0)
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
        CASE WHEN place_1 = 1 THEN numbers_1 END AS logprobs,
        CASE
            WHEN place_1 = 2 THEN numbers_1
            WHEN place_2 = 2 THEN numbers_2
        END AS reference_logprobs
    FROM ordered
    WHERE place = 0
),
referred AS (
    SELECT rewarded.*, signal.logprobs, signal.reference_logprobs
    FROM calls_of_rollouts AS rewarded
    LEFT JOIN signals AS signal ON signal.run_id = rewarded.run_id AND signal.call_id = rewarded.call_id
),
placed AS (
    SELECT
        *,
        place_reward(advantage, token_mask, call_id)
            OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS due
    FROM referred
),
charged AS (
    SELECT
        run_id, step, rollout_id, call_id, token_mask, baseline_scope, baseline_key, baseline_count,
        token_returns(
            token_sum(
                due,
                CASE
                    WHEN $init_kl_coef <> 0
                    THEN clip(token_kl(
                        logprobs, reference_logprobs, token_mask, call_id,
                        estimator => $kl_estimator, unselected => 'zero'
                    ), -10, 10)
                END,
                call_id,
                weight => 0.0 - $init_kl_coef
            ),
            token_mask, call_id, gap_len, observations => 'zero'
        ) OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS numbers
    FROM placed
),
batch AS (
    SELECT run_id, step, token_moments(numbers, token_mask, call_id) AS moments
    FROM charged
    GROUP BY run_id, step
)
SELECT
    run_id,
    rollout_id,
    CAST(NULL AS VARCHAR) AS call_id,
    'advantage' AS quantity,
    'rollout' AS level,
    advantage AS value,
    CAST(NULL AS DOUBLE[]) AS token_values,
    baseline_scope,
    baseline_key,
    baseline_count
FROM of_rollouts
WHERE $init_kl_coef = 0
UNION ALL
SELECT
    one.run_id,
    one.rollout_id,
    one.call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    whiten(one.numbers, one.token_mask, batch.moments, one.call_id, ddof => 0, eps_at => 'floor') AS token_values,
    one.baseline_scope,
    one.baseline_key,
    one.baseline_count
FROM charged AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
