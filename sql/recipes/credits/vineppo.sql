-- @kind credit
-- @doc VinePPO: the value of a state is the mean reward of the rollouts that continue from it (origin_rollout_id,
--   origin_call_id, origin_position), and a step from one such state to the next gets the difference. The last step
--   ends with the rollout's own reward. Tokens before the first state are unknown; continuations get no credit
--   themselves.
-- @formula A = V(next state) - V(state), V = mean reward of the continuations
-- @source arXiv 2410.01679 (VinePPO)
-- @param continuation_reward string = null : reward that holds the continuations, where they do not train; null = the same
-- @test values 0.5, 0.25 and 0.75 of three states, then the reward 1
--   rollouts {"rollout_id": "a", "group_id": "g"}
--     {"rollout_id": "k1", "group_id": "g", "relation": "continuation", "origin_rollout_id": "a", "origin_call_id": "a0", "origin_position": 1}
--     {"rollout_id": "k2", "group_id": "g", "relation": "continuation", "origin_rollout_id": "a", "origin_call_id": "a0", "origin_position": 1}
--     {"rollout_id": "k3", "group_id": "g", "relation": "continuation", "origin_rollout_id": "a", "origin_call_id": "a0", "origin_position": 3}
--     {"rollout_id": "k4", "group_id": "g", "relation": "continuation", "origin_rollout_id": "a", "origin_call_id": "a1", "origin_position": 0}
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "k1", "group_id": "g", "value": 1}
--     {"rollout_id": "k2", "group_id": "g", "value": 0} {"rollout_id": "k3", "group_id": "g", "value": 0.25}
--     {"rollout_id": "k4", "group_id": "g", "value": 0.75}
--   calls {"call_id": "a0", "rollout_id": "a", "call_index": 0, "output_len": 4}
--     {"call_id": "a1", "rollout_id": "a", "call_index": 1, "parent_call_id": "a0", "output_len": 1}
--   expect {"rollout_id": "a", "call_id": "a0", "token_values": [null, -0.25, -0.25, 0.5]}
--     {"rollout_id": "a", "call_id": "a1", "token_values": [0.25]}
WITH continued AS (
    SELECT member.run_id, member.origin_rollout_id, member.origin_call_id, member.origin_position, own.value
    FROM rollouts AS member
    JOIN (
        SELECT run_id, rollout_id, value FROM reward WHERE call_id IS NULL AND $continuation_reward IS NULL
        UNION ALL
        SELECT run_id, rollout_id, value FROM rewards WHERE call_id IS NULL AND name = $continuation_reward
    ) AS own ON own.run_id = member.run_id AND own.rollout_id = member.rollout_id
    WHERE member.relation = 'continuation' AND member.origin_call_id IS NOT NULL AND member.origin_position IS NOT NULL
),
states AS (
    SELECT run_id, origin_call_id AS call_id, CAST(origin_position AS BIGINT) AS position, exact_avg(value) AS state_value
    FROM continued
    GROUP BY run_id, origin_call_id, origin_position
    HAVING count(value) > 0
),
paths AS (
    SELECT path.run_id, path.rollout_id, path.call_id, path.call_index, path.trajectory_id, own.value AS outcome
    FROM trajectories AS path
    JOIN (
        SELECT run_id, rollout_id, value
        FROM reward
        WHERE call_id IS NULL AND COALESCE(relation, '') <> 'continuation'
    ) AS own ON own.run_id = path.run_id AND own.rollout_id = path.rollout_id
),
marks AS (
    -- Every call has a mark at its first token, so that a step may reach over calls.
    SELECT paths.*, mark.position, mark.state_value
    FROM paths
    JOIN (
        SELECT run_id, call_id, position, max(state_value) AS state_value
        FROM (
            SELECT run_id, call_id, position, state_value FROM states
            UNION ALL
            SELECT run_id, call_id, CAST(0 AS BIGINT) AS position, CAST(NULL AS DOUBLE) AS state_value FROM paths
        )
        GROUP BY run_id, call_id, position
    ) AS mark ON mark.run_id = paths.run_id AND mark.call_id = paths.call_id
),
numbered AS (
    SELECT
        *,
        count(state_value) OVER (
            PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id, position
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS step_number
    FROM marks
),
steps AS (
    SELECT
        run_id, rollout_id, trajectory_id, step_number,
        CASE
            WHEN step_number = 0 THEN CAST(NULL AS DOUBLE)
            WHEN lead(step_number) OVER w IS NULL THEN outcome - state_value
            ELSE lead(state_value) OVER w - state_value
        END AS advantage
    FROM (
        SELECT run_id, rollout_id, trajectory_id, step_number, max(state_value) AS state_value, max(outcome) AS outcome
        FROM numbered
        GROUP BY run_id, rollout_id, trajectory_id, step_number
    )
    WINDOW w AS (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY step_number)
),
listed AS (
    SELECT
        numbered.run_id, numbered.rollout_id, numbered.call_id,
        array_agg(numbered.position ORDER BY numbered.position) AS starts,
        array_agg(steps.advantage ORDER BY numbered.position) AS advantages
    FROM numbered
    JOIN steps
        ON steps.run_id = numbered.run_id AND steps.rollout_id = numbered.rollout_id
        AND steps.trajectory_id = numbered.trajectory_id AND steps.step_number = numbered.step_number
    GROUP BY numbered.run_id, numbered.rollout_id, numbered.call_id
)
SELECT
    listed.run_id,
    listed.rollout_id,
    listed.call_id,
    'advantage' AS quantity,
    'token' AS level,
    CAST(NULL AS DOUBLE) AS value,
    token_steps(path.token_mask, listed.starts, listed.advantages, listed.call_id) AS token_values
FROM listed
JOIN trajectories AS path ON path.run_id = listed.run_id AND path.call_id = listed.call_id
