-- One row per call of a trajectory with what the reward gives it: `outcome` is the reward of its rollout, `earned` its own.
-- Credit recipes alone have it, since only they have a view `reward`.
SELECT
    path.*,
    whole.outcome,
    CASE WHEN own.call_id IS NULL THEN 0.0 ELSE own.value END AS earned
FROM trajectories AS path
JOIN (
    -- Without a reward of the whole rollout its calls have earned all there is.
    SELECT
        run_id,
        rollout_id,
        CASE
            WHEN count(*) FILTER (WHERE call_id IS NULL) = 0 THEN 0.0
            ELSE max(value) FILTER (WHERE call_id IS NULL)
        END AS outcome
    FROM reward
    GROUP BY run_id, rollout_id
) AS whole ON whole.run_id = path.run_id AND whole.rollout_id = path.rollout_id
LEFT JOIN (SELECT run_id, call_id, value FROM reward WHERE call_id IS NOT NULL) AS own
    ON own.run_id = path.run_id AND own.call_id = path.call_id
