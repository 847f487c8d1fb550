-- @kind credit
-- @doc GiGPO as in ROLL: mean and deviation of the episodes run over calls, so that long trajectories weigh more.
--   Quirk: states are compared over the whole batch, so that equal states of two groups are one. The reward of a call is its own, if it has
--   one, and at the end of a trajectory (view trajectories) that of the rollout. A call saw the state_digest of the
--   last environment record delivered to it; one whose state is unknown is compared with none.
-- @formula A = episode_reward_weight * (R - mean) / (std + 1e-6) over the calls of the group + step_reward_weight *
--   (step return - mean) / (std + 1e-6) over the calls of the step that saw the same state; 0 where std <= 1e-6; clip(A,
--   -reward_clip, reward_clip)
-- @source ROLL at commit 8eb27cc2, roll/pipeline/agentic/utils.py (compute_response_level_rewards, build_state_group)
-- @differs verl-agent/gigpo counts each trajectory once, and compares states within a group; state_scope=group is the
--   corrected form of the latter
-- @param step_reward_gamma double = 0.95 : discount of one step in the step return
-- @param episode_reward_weight double = 1 : weight of the episode advantage
-- @param step_reward_weight double = 1 : weight of the step advantage
-- @param state_scope string = batch : where equal states are compared: batch (the calls of a step), or group
-- @param reward_clip double = null : greatest size of the sum; null = no limit
-- @check state_scope is {given}: it must be batch or group
--   SELECT $state_scope AS given WHERE $state_scope IS NULL OR $state_scope NOT IN ('batch', 'group')
-- @test episodes compared call by call
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
--   param step_reward_gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "value": -0.158919122595}
--     {"rollout_id": "a", "call_id": "a1", "value": -0.866023903787}
--     {"rollout_id": "b", "call_id": "b0", "value": 0.158919122595}
--     {"rollout_id": "b", "call_id": "b1", "value": 0.866023903787} {"rollout_id": "c", "call_id": "c0", "value": 0.0}
-- @test two groups saw one state: pooled over the step, apart with state_scope=group
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "h", "value": 3}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--   environment_records {"record_id": "1", "rollout_id": "a", "delivered_call_id": "a0", "state_digest": "s"}
--     {"record_id": "2", "rollout_id": "b", "delivered_call_id": "b0", "state_digest": "s"}
--   param reward_clip=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "value": -0.5} {"rollout_id": "b", "call_id": "b0", "value": 0.5}
-- @test apart
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "h", "value": 3}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--   environment_records {"record_id": "1", "rollout_id": "a", "delivered_call_id": "a0", "state_digest": "s"}
--     {"record_id": "2", "rollout_id": "b", "delivered_call_id": "b0", "state_digest": "s"}
--   param state_scope=group
--   expect {"rollout_id": "a", "call_id": "a0", "value": 0} {"rollout_id": "b", "call_id": "b0", "value": 0}
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
        turn_returns(reward, call_id, gamma => $step_reward_gamma)
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
        ) AS state
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
    LEFT JOIN (SELECT run_id, rollout_id, initial_state_digest FROM rollouts) AS start
        ON start.run_id = grouped.run_id AND start.rollout_id = grouped.rollout_id
),
compared AS (
    SELECT
        *,
        grpo(episode_return, call, min_std => 1e-6) OVER (PARTITION BY run_id, group_key) AS episode_advantage,
        CASE
            WHEN state IS NULL THEN 0.0
            WHEN $state_scope = 'group' THEN grpo(step_return, call, min_std => 1e-6) OVER (PARTITION BY run_id, group_key, state)
            ELSE grpo(step_return, call, min_std => 1e-6) OVER (PARTITION BY run_id, step, state)
        END AS step_advantage
    FROM stated
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'call' AS level,
    clip(
        $episode_reward_weight * episode_advantage + $step_reward_weight * step_advantage,
        0.0 - $reward_clip,
        $reward_clip
    ) AS value,
    'group' AS baseline_scope,
    group_key AS baseline_key
FROM compared
