-- One row per sampling group, as the rollouts record it.
SELECT
    run_id,
    group_id,
    min(step) AS step,
    count(DISTINCT rollout_id) AS rollout_count,
    count(DISTINCT rollout_id) FILTER (WHERE status = 'completed') AS completed_count,
    count(DISTINCT rollout_id) FILTER (WHERE status = 'truncated') AS truncated_count,
    count(DISTINCT rollout_id) FILTER (WHERE status = 'failed') AS failed_count,
    count(DISTINCT rollout_id) FILTER (WHERE status = 'aborted') AS aborted_count,
    count(DISTINCT rollout_id) FILTER (WHERE status = 'running') AS running_count,
    count(DISTINCT task_id) AS task_count,
    min(task_id) AS task_id,
    min(coalesce(purpose, 'train')) AS purpose,
    min(policy_version_min) AS policy_version_min,
    max(policy_version_max) AS policy_version_max,
    min(started_at) AS started_at,
    max(finished_at) AS finished_at
FROM rollouts
WHERE group_id IS NOT NULL
GROUP BY run_id, group_id
