-- @kind credit
-- @doc GiGPO as in verl-agent, each trajectory voting once. The only trajectory of a group keeps its return. The reward
--   of a call is its own, if it has one, and at the end of a trajectory (view trajectories) that of the rollout. A call
--   saw the state_digest of the last environment record delivered to it; one whose state is unknown is compared with
--   none.
-- @formula A = A_episode + step_advantage_w * A_step; A_episode = R - mean over the trajectories of the group, A_step =
--   step return - mean over the calls of the group that saw the same state; a trajectory alone in its group: A_episode
--   = R
-- @source verl-agent, gigpo/core_gigpo.py (build_step_group, episode_norm_reward, step_norm_reward)
-- @differs gigpo gives 0 to the only trajectory of a group; roll/gigpo lets long trajectories weigh more. With
--   enable_similarity calls are grouped by what they read, not by state_digest
-- @param gamma double = 1 : discount of one step in the step return
-- @param step_advantage_w double = 1 : weight of the step advantage
-- @param enable_similarity boolean = false : true compares calls that read similar observations: the content of the last
--   record delivered to the call (of the first call the rollout's initial_state_digest), see similarity_group
-- @param similarity_thresh double = 0.95 : least ratio of similar observations
-- @param mode string = mean_norm : mean_norm subtracts the mean, mean_std_norm also divides by std + 1e-6
-- @check mode must be mean_norm or mean_std_norm, not {mode}
--   SELECT $mode AS mode WHERE $mode NOT IN ('mean_norm', 'mean_std_norm')
-- @test the only trajectory of a group keeps its return
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--     {"rollout_id": "c", "group_id": "h", "value": 5}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--     {"call_id": "c0", "rollout_id": "c", "call_index": 0, "output_len": 1}
--   environment_records {"record_id": "1", "rollout_id": "a", "delivered_call_id": "a0", "state_digest": "s"}
--     {"record_id": "2", "rollout_id": "b", "delivered_call_id": "b0", "state_digest": "s"}
--     {"record_id": "3", "rollout_id": "a", "call_id": "a0", "state_digest": "t"}
--     {"record_id": "4", "rollout_id": "b", "delivered_call_id": "b1", "state_digest": "u"}
--   param gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "value": -0.25} {"rollout_id": "a", "call_id": "a1", "value": -0.5}
--     {"rollout_id": "b", "call_id": "b0", "value": 0.25} {"rollout_id": "b", "call_id": "b1", "value": 0.5}
--     {"rollout_id": "c", "call_id": "c0", "value": 5.0}
-- @test calls that read nearly the same are compared
--   reward {"rollout_id": "a", "group_id": "g", "value": 3} {"rollout_id": "b", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--   environment_records {"record_id": "1", "rollout_id": "a", "delivered_call_id": "a0", "content": "You see a red door and a blue key. Turn 1."}
--     {"record_id": "2", "rollout_id": "b", "delivered_call_id": "b0", "content": "You see a red door and a blue key. Turn 7."}
--   param enable_similarity=true
--   expect {"rollout_id": "a", "call_id": "a0", "value": 2} {"rollout_id": "b", "call_id": "b0", "value": -2}
-- @test and not where only equal states are
--   reward {"rollout_id": "a", "group_id": "g", "value": 3} {"rollout_id": "b", "group_id": "g", "value": 1}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--   environment_records {"record_id": "1", "rollout_id": "a", "delivered_call_id": "a0", "content": "You see a red door and a blue key. Turn 1."}
--     {"record_id": "2", "rollout_id": "b", "delivered_call_id": "b0", "content": "You see a red door and a blue key. Turn 7."}
--   expect {"rollout_id": "a", "call_id": "a0", "value": 1} {"rollout_id": "b", "call_id": "b0", "value": -1}
WITH steps AS (
    SELECT
        *,
        earned + CASE
            WHEN row_number() OVER (
                PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index DESC, call_id DESC
            ) = 1 THEN outcome
            ELSE 0.0
        END AS reward
    FROM rewarded_calls
),
discounted AS (
    SELECT
        *,
        turn_returns(reward, call_id, gamma => $gamma)
            OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS step_return,
        exact_sum(reward) OVER (PARTITION BY run_id, rollout_id, trajectory_id) AS episode_return
    FROM steps
),
grouped AS (
    SELECT
        discounted.*,
        member.group_key,
        discounted.rollout_id || '/' || discounted.trajectory_id AS trajectory,
        discounted.rollout_id || '/' || discounted.call_id AS call
    FROM discounted
    JOIN (
        SELECT DISTINCT run_id, rollout_id, CAST($group_key AS VARCHAR) AS group_key FROM reward
    ) AS member
        ON member.run_id = discounted.run_id AND member.rollout_id = discounted.rollout_id
    WHERE member.group_key IS NOT NULL
),
stated AS (
    -- The state a call saw: of the last record delivered to it, else of what followed the call before, else the first.
    SELECT
        grouped.*,
        COALESCE(
            delivered.state_digest,
            followed.state_digest,
            CASE WHEN grouped.is_first THEN start.initial_state_digest END
        ) AS digest,
        CASE
            WHEN $enable_similarity
            THEN COALESCE(read.content, answered.content, CASE WHEN grouped.is_first THEN start.initial_state_digest END)
        END AS observation
    FROM (
        SELECT
            *,
            lag(call_id) OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS previous,
            row_number() OVER (PARTITION BY run_id, rollout_id ORDER BY call_index, call_id) = 1 AS is_first
        FROM grouped
    ) AS grouped
    LEFT JOIN (
        SELECT run_id, delivered_call_id, first_value(state_digest ORDER BY call_index DESC, record_id DESC) AS state_digest
        FROM environment_records
        WHERE state_digest IS NOT NULL AND delivered_call_id IS NOT NULL
        GROUP BY run_id, delivered_call_id
    ) AS delivered ON delivered.run_id = grouped.run_id AND delivered.delivered_call_id = grouped.call_id
    LEFT JOIN (
        SELECT run_id, call_id, first_value(state_digest ORDER BY record_id DESC) AS state_digest
        FROM environment_records
        WHERE state_digest IS NOT NULL AND delivered_call_id IS NULL AND call_id IS NOT NULL
        GROUP BY run_id, call_id
    ) AS followed ON followed.run_id = grouped.run_id AND followed.call_id = grouped.previous
    LEFT JOIN (
        SELECT run_id, delivered_call_id, first_value(content ORDER BY call_index DESC, record_id DESC) AS content
        FROM environment_records
        WHERE $enable_similarity AND content IS NOT NULL AND delivered_call_id IS NOT NULL
        GROUP BY run_id, delivered_call_id
    ) AS read ON read.run_id = grouped.run_id AND read.delivered_call_id = grouped.call_id
    LEFT JOIN (
        SELECT run_id, call_id, first_value(content ORDER BY record_id DESC) AS content
        FROM environment_records
        WHERE $enable_similarity AND content IS NOT NULL AND delivered_call_id IS NULL AND call_id IS NOT NULL
        GROUP BY run_id, call_id
    ) AS answered ON answered.run_id = grouped.run_id AND answered.call_id = grouped.previous
    LEFT JOIN (SELECT run_id, rollout_id, initial_state_digest FROM rollouts) AS start
        ON start.run_id = grouped.run_id AND start.rollout_id = grouped.rollout_id
),
alike AS (
    SELECT
        *,
        CASE
            WHEN $enable_similarity
            THEN CAST(
                similarity_group(observation, similarity_thresh => $similarity_thresh)
                    OVER (PARTITION BY run_id, group_key ORDER BY rollout_id, call_index, call_id)
                AS VARCHAR
            )
            ELSE digest
        END AS state
    FROM stated
),
compared AS (
    SELECT
        *,
        CASE
                WHEN $mode = 'mean_std_norm'
                THEN grpo(episode_return, trajectory, singleton => 'value') OVER (PARTITION BY run_id, group_key)
                ELSE dr_grpo(episode_return, trajectory, singleton => 'value') OVER (PARTITION BY run_id, group_key)
            END AS episode_advantage,
        CASE
            WHEN state IS NULL THEN 0.0
            ELSE CASE
                WHEN $mode = 'mean_std_norm'
                THEN grpo(step_return, call) OVER (PARTITION BY run_id, group_key, state)
                ELSE dr_grpo(step_return, call) OVER (PARTITION BY run_id, group_key, state)
            END
        END AS step_advantage
    FROM alike
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'call' AS level,
    episode_advantage + $step_advantage_w * step_advantage AS value,
    'group' AS baseline_scope,
    group_key AS baseline_key
FROM compared
