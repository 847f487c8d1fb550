-- @kind credit
-- @doc prime-rl's hierarchical_grpo: the roles named in episode_agents, as the solvers of one proposed problem, are
--   compared within their episode, all others with the same role across the group; not divided. A rollout without a reward is no member of its group and gets
--   no credit; one without a group has nothing to be compared with.
-- @formula A = r - mean, over the rollouts of the same agent in the episode for agents named in episode_agents, else in the
--   group; 0 for a singleton
-- @source prime-rl at commit 559b4477, src/prime_rl/orchestrator/algo/hierarchical_grpo.py (hierarchical_grpo)
-- @differs prime-rl/grpo with two kinds of group.
-- @param episode_agents json = [] : agents compared within an episode, as ["worker"]
-- @param agent expression = harness : expression over rollouts that names the agent
-- @param episode expression = origin_rollout_id : expression over rollouts that names the episode
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 0.75} {"rollout_id": "b", "value": -0.25} {"rollout_id": "c", "value": -0.25}
--     {"rollout_id": "d", "value": -0.25} {"rollout_id": "e", "value": 0} {"rollout_id": "f", "value": 0}
--     {"rollout_id": "h", "value": 0}
WITH placed AS (
    SELECT
        reward.*,
        COALESCE(array_has(CAST(json_get_array($episode_agents) AS VARCHAR[]), concat('"', $agent, '"')), false) AS in_episode
    FROM reward
    WHERE call_id IS NULL
),
keyed AS (
    SELECT
        *,
        CAST($agent AS VARCHAR) AS agent_key,
        CASE WHEN in_episode THEN CAST($episode AS VARCHAR) ELSE CAST($group_key AS VARCHAR) END AS baseline_key,
        CASE WHEN in_episode THEN 'episode' ELSE 'group' END AS baseline_scope
    FROM placed
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN baseline_key IS NOT NULL
        THEN dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, baseline_scope, baseline_key, agent_key)
    END AS value,
    baseline_scope,
    baseline_key,
    CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, baseline_scope, baseline_key, agent_key) AS INTEGER)
        AS baseline_count
FROM keyed
