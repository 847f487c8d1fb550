-- @kind credit
-- @doc Multi-turn GRPO: the outcome compared over the trajectories of the group, and the reward of each call compared
--   over the calls at the same place in theirs. The last call of a trajectory gets the outcome's advantage alone.
-- @formula A_i = A_turn + outcome_weight * A_outcome before the last call, A_outcome for it; both (r - mean) / (std +
--   eps)
-- @source arXiv 2505.11821 (MT-GRPO)
-- @param outcome_weight double = 1 : weight of the outcome in the calls before the last
-- @param eps double = 1e-6 : added to the standard deviations
-- @test calls at one place are compared, and the outcomes
--   reward {"rollout_id": "a", "group_id": "g", "value": 1}
--     {"rollout_id": "a", "group_id": "g", "value": 2, "call_id": "a0"}
--     {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "b", "group_id": "g", "value": 4, "call_id": "b1"}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 2}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--     {"call_id": "b0", "rollout_id": "b", "call_index": 0, "output_len": 1}
--     {"call_id": "b1", "rollout_id": "b", "call_index": 1, "parent_call_id": "b0", "output_len": 2}
--   param outcome_weight=0.5
--   expect {"rollout_id": "a", "call_id": "a0", "value": 1.06065917178}
--     {"rollout_id": "a", "call_id": "a1", "value": 0.707105781188}
--     {"rollout_id": "b", "call_id": "b0", "value": -1.06065917178}
--     {"rollout_id": "b", "call_id": "b1", "value": -0.707105781188}
WITH placed AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id) AS place,
        row_number() OVER (
            PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index DESC, call_id DESC
        ) = 1 AS is_last
    FROM rewarded_calls
),
grouped AS (
    SELECT
        placed.*,
        member.group_key,
        placed.rollout_id || '/' || placed.trajectory_id AS trajectory,
        placed.rollout_id || '/' || placed.call_id AS call
    FROM placed
    JOIN (
        SELECT DISTINCT run_id, rollout_id, CAST($group_key AS VARCHAR) AS group_key FROM reward
    ) AS member
        ON member.run_id = placed.run_id AND member.rollout_id = placed.rollout_id
    WHERE member.group_key IS NOT NULL
),
compared AS (
    SELECT
        *,
        grpo(outcome, trajectory, eps => $eps) OVER (PARTITION BY run_id, group_key) AS outcome_advantage,
        grpo(earned, trajectory, eps => $eps) OVER (PARTITION BY run_id, group_key, place) AS turn_advantage
    FROM grouped
)
SELECT
    run_id,
    rollout_id,
    call_id,
    'advantage' AS quantity,
    'call' AS level,
    CASE WHEN is_last THEN outcome_advantage ELSE turn_advantage + $outcome_weight * outcome_advantage END AS value,
    'group' AS baseline_scope,
    group_key AS baseline_key
FROM compared
