-- @kind credit
-- @doc Group-relative process supervision: the rewards of all calls of the group are normalized together, and a call
--   gets the sum of its own and the later ones. The reward of a call is its own, if it has one, and at the end of a
--   trajectory (view trajectories) that of the rollout.
-- @formula n_i = (r_i - mean) / (std + eps) over the calls of the group; A_i = n_i + A_next
-- @source arXiv 2402.03300, section 4.1.3 (DeepSeekMath)
-- @param eps double = 1e-6 : added to the standard deviation
-- @test rewards 2, 1, 0 and 4 normalized, then summed from the end
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   expect {"rollout_id": "a", "call_id": "a0", "value": -0.292769850456}
--     {"rollout_id": "a", "call_id": "a1", "value": -0.439154775684}
--     {"rollout_id": "b", "call_id": "b0", "value": 0.292769850456}
--     {"rollout_id": "b", "call_id": "b1", "value": 1.31746432705}
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
grouped AS (
    SELECT
        steps.*,
        member.group_key,
        steps.rollout_id || '/' || steps.trajectory_id AS trajectory,
        steps.rollout_id || '/' || steps.call_id AS call
    FROM steps
    JOIN (
        SELECT DISTINCT run_id, rollout_id, CAST($group_key AS VARCHAR) AS group_key FROM reward
    ) AS member
        ON member.run_id = steps.run_id AND member.rollout_id = steps.rollout_id
    WHERE member.group_key IS NOT NULL
),
normalized AS (
    SELECT *, grpo(reward, call, eps => $eps) OVER (PARTITION BY run_id, group_key) AS relative_reward
    FROM grouped
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'call' AS level,
    turn_returns(relative_reward, call_id)
        OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS value,
    'group' AS baseline_scope,
    group_key AS baseline_key
FROM normalized
