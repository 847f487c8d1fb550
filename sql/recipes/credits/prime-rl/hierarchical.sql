-- @kind credit
-- @doc prime-rl's hierarchical GRPO: agents that take part in one episode several times are compared within the
--   episode, all others across the group; not divided. A rollout without a reward is no member of its group and gets
--   no credit; one without a group has nothing to be compared with.
-- @formula A = r - mean, over the rollouts of the same agent in the episode for agents named in episode_agents, else in the
--   group; 0 for a singleton
-- @source prime-rl, orchestrator/advantage.py
-- @differs prime-rl/grpo with two kinds of group.
-- @param episode_agents json = [] : agents compared within an episode, as ["worker"]
-- @param agent expression = harness : expression over rollouts that names the agent
-- @param episode expression = origin_rollout_id : expression over rollouts that names the episode
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
