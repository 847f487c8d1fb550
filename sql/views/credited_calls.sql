-- One row per call of a trajectory with what a credit gives it: its own where it has one, else that of its rollout.
-- Recipes that transform a credit alone have it, since only they have a view `credit`.
WITH given AS (
    SELECT
        run_id,
        rollout_id,
        call_id,
        value,
        token_values,
        COALESCE(quantity, 'advantage') AS quantity,
        COALESCE(
            level,
            CASE
                WHEN token_values IS NOT NULL THEN 'token'
                WHEN call_id IS NOT NULL THEN 'call'
                ELSE 'rollout'
            END
        ) AS level
    FROM credit
)
SELECT
    path.run_id,
    path.rollout_id,
    path.trajectory_id,
    path.call_id,
    COALESCE(own.quantity, whole.quantity) AS quantity,
    COALESCE(own.level, 'call') AS level,
    COALESCE(own.value, whole.value) AS value,
    own.token_values
FROM (SELECT run_id, rollout_id, trajectory_id, call_id FROM trajectories) AS path
LEFT JOIN (SELECT * FROM given WHERE call_id IS NULL) AS whole
    ON whole.run_id = path.run_id AND whole.rollout_id = path.rollout_id
LEFT JOIN (SELECT * FROM given WHERE call_id IS NOT NULL) AS own
    ON own.run_id = path.run_id AND own.call_id = path.call_id
WHERE own.call_id IS NOT NULL OR whole.rollout_id IS NOT NULL
