-- @kind credit
-- @doc REINFORCE++ with a baseline: the reward less the mean of the group, whitened over the trained tokens of the
--   step. The reward of a trajectory (view trajectories) is that of the rollout and those of its calls; each is a
--   member of the group.
-- @formula a = r - mean over the trajectories of the group; (a - m) / sqrt(var + 1e-8), m and var over the trained
--   tokens of the step; 0 for a singleton before whitening
-- @source arXiv 2501.03262
-- @test one of four wins: mean -0.05 and sample variance 160 / 999
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--   calls {"call_id": "a", "rollout_id": "a", "call_index": 0, "output_len": 200}
--     {"call_id": "b", "rollout_id": "b", "call_index": 0, "output_len": 400}
--     {"call_id": "c", "rollout_id": "c", "call_index": 0, "output_len": 100}
--     {"call_id": "d", "rollout_id": "d", "call_index": 0, "output_len": 300}
--   expect {"rollout_id": "a", "call_id": "a", "value": 1.99899968747}
--     {"rollout_id": "b", "call_id": "b", "value": -0.499749921867}
--     {"rollout_id": "c", "call_id": "c", "value": -0.499749921867}
--     {"rollout_id": "d", "call_id": "d", "value": -0.499749921867}
WITH grouped AS (
    SELECT
        rewarded.*,
        member.group_key,
        rewarded.rollout_id || '/' || rewarded.trajectory_id AS trajectory,
        rewarded.rollout_id || '/' || rewarded.call_id AS call
    FROM rewarded_calls AS rewarded
    JOIN (
        SELECT DISTINCT run_id, rollout_id, CAST($group_key AS VARCHAR) AS group_key FROM reward
    ) AS member
        ON member.run_id = rewarded.run_id AND member.rollout_id = rewarded.rollout_id
    WHERE member.group_key IS NOT NULL
),
summed AS (
    SELECT *, outcome + exact_sum(earned) OVER (PARTITION BY run_id, rollout_id, trajectory_id) AS episode_return
    FROM grouped
),
centered AS (
    SELECT *, dr_grpo(episode_return, trajectory) OVER (PARTITION BY run_id, group_key) AS advantage
    FROM summed
),
batch AS (
    SELECT
        centered.run_id,
        centered.step,
        token_moments(token_fill(centered.advantage, path.token_mask), path.token_mask, path.call_id) AS moments
    FROM centered
    JOIN trajectories AS path ON path.run_id = centered.run_id AND path.call_id = centered.call_id
    GROUP BY centered.run_id, centered.step
)
SELECT
    one.run_id,
    one.rollout_id,
    one.call_id,
    'advantage' AS quantity,
    'call' AS level,
    whiten(make_array(one.advantage), NULL, batch.moments, one.call_id)[1] AS value,
    'group' AS baseline_scope,
    one.group_key AS baseline_key
FROM centered AS one
JOIN batch ON batch.run_id = one.run_id AND batch.step IS NOT DISTINCT FROM one.step
