-- @kind credit
-- @doc The discounted reward from each token on. A trajectory is a path of calls through the rollout (view
--   trajectories); the reward of the rollout falls due at its last trained token, that of a call at the call's last.
-- @formula G_t = r_t + gamma * G_next, over the trained tokens of a trajectory
-- @source arXiv 2501.03262 (the returns of REINFORCE++)
-- @param gamma double = 1 : discount of one token
-- @param token_rewards string = null : signal whose values are added to the rewards of tokens; null = none
-- @param outcome_weight double = 1 : what the rewards of rollouts and calls are multiplied with
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
-- @test a reward falls due at the last token, of the rollout or the call
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [1.25, 2.5]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [1.0]}
--     {"rollout_id": "b", "call_id": "b1", "token_values": [2.0, 4.0]}
-- @test rewards of tokens alone
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   token_signals {"rollout_id": "a", "call_id": "a0", "name": "token_reward", "values": [0.5, 0]}
--     {"rollout_id": "a", "call_id": "a1", "name": "token_reward", "values": [1]}
--     {"rollout_id": "b", "call_id": "b0", "name": "token_reward", "values": [0]}
--     {"rollout_id": "b", "call_id": "b1", "name": "token_reward", "values": [null, 1]}
--   param gamma=0.5
--   param token_rewards=token_reward
--   param outcome_weight=0
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [0.75, 0.5]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [1.0]}
--     {"rollout_id": "b", "call_id": "b0", "token_values": [null]}
--     {"rollout_id": "b", "call_id": "b1", "token_values": [null, 1.0]}
WITH listed AS (
    SELECT DISTINCT run_id, call_id, 0 AS place, CAST(NULL AS DOUBLE[]) AS numbers
    FROM calls
    UNION ALL
    SELECT
        run_id,
        call_id,
        CASE
            WHEN name = $token_rewards THEN 1
        END AS place,
        "values" AS numbers
    FROM token_signals
    WHERE ($producer IS NULL OR producer = $producer)
        AND (
            name = $token_rewards
        )
),
ordered AS (
    -- Side by side by sorting, so that no list waits in memory for its partner.
    SELECT
        run_id,
        call_id,
        place,
        lead(place, 1) OVER calls AS place_1,
        lead(numbers, 1) OVER calls AS numbers_1
    FROM listed
    WINDOW calls AS (PARTITION BY run_id, call_id ORDER BY place)
),
signals AS (
    SELECT
        run_id,
        call_id,
        CASE WHEN place_1 = 1 THEN numbers_1 END AS token_rewards
    FROM ordered
    WHERE place = 0
),
added AS (
    SELECT rewarded.*, signal.token_rewards
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
    FROM added
),
paid AS (
    SELECT *, CASE WHEN $token_rewards IS NULL THEN due ELSE token_sum(due, token_rewards, call_id) END AS rewards
    FROM placed
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'return' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    token_returns(
        rewards, token_mask, call_id, gap_len, gamma => $gamma, observations => $observations
    ) OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS token_values
FROM paid
