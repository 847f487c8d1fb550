-- @kind credit
-- @doc Step REINFORCE as in ROLL: the discounted reward from each call on, normalized over the calls of a group. The
--   reward of a call is its own, if it has one, and at the end of a trajectory (view trajectories) that of the rollout.
-- @formula R_i = r_i + step_reward_gamma * R_next; mean_std: (R - mean) / (std + 1e-6), 0 where std <=
--   1e-6; mean: R - mean; none: R; then clip(-reward_clip, reward_clip)
-- @source ROLL at commit 8eb27cc2, roll/pipeline/agentic/utils.py (compute_discounted_returns, agentic_reward_norm)
-- @differs areal/turn_discount has eps 1e-5
-- @param step_reward_gamma double = 0.95 : discount of one step
-- @param method string = mean_std : mean_std, mean or none; what it runs over is the group_key
-- @param reward_clip double = null : greatest size after normalization; null = no limit
-- @check method must be mean_std, mean or none, not {method}
--   SELECT $method AS method WHERE $method NOT IN ('mean_std', 'mean', 'none')
-- @test less the mean of four calls
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param step_reward_gamma=0.5
--   param method=mean
--   expect {"rollout_id": "a", "call_id": "a0", "value": 0.125} {"rollout_id": "a", "call_id": "a1", "value": -1.375}
--     {"rollout_id": "b", "call_id": "b0", "value": -0.375} {"rollout_id": "b", "call_id": "b1", "value": 1.625}
-- @test over the deviation 1.25 of four calls
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param step_reward_gamma=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "value": 0.0999999200001}
--     {"rollout_id": "a", "call_id": "a1", "value": -1.09999912}
--     {"rollout_id": "b", "call_id": "b0", "value": -0.29999976}
--     {"rollout_id": "b", "call_id": "b1", "value": 1.29999896}
-- @test an unknown method
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param method=median
--   error method must be mean_std, mean or none, not median
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
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'call' AS level,
    clip(
        CASE $method
            WHEN 'mean_std' THEN grpo(step_return, call, min_std => 1e-6) OVER (PARTITION BY run_id, group_key)
            WHEN 'mean' THEN dr_grpo(step_return, call) OVER (PARTITION BY run_id, group_key)
            ELSE step_return
        END,
        0.0 - $reward_clip,
        $reward_clip
    ) AS value,
    'group' AS baseline_scope,
    group_key AS baseline_key
FROM grouped
