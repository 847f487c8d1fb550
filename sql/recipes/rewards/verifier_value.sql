-- @kind reward
-- @doc The value of one verifier. Without the parameter, the only verifier that scored the rollout.
-- @formula reward = value of the verifier's newest valid score of the rollout; null with the reason where there is none
-- @param verifier string = null : verifier to take; null = the only one that scored the rollout
-- @check no score comes from the verifier asked for; the verifiers are {verifiers}
--   SELECT string_agg(verifier, ', ' ORDER BY verifier) AS verifiers
--   FROM (SELECT DISTINCT verifier FROM scores)
--   HAVING $verifier IS NOT NULL AND count(*) FILTER (WHERE verifier = $verifier) = 0
-- @check rollout {rollout_id} of run {run_id} was scored by several verifiers ({verifiers}): name one with the parameter verifier
--   SELECT verified.run_id, verified.rollout_id, string_agg(verified.verifier, ', ' ORDER BY verified.verifier) AS verifiers
--   FROM (
--     SELECT run_id, rollout_id
--     FROM scores
--     WHERE call_id IS NULL AND $verifier IS NULL
--     GROUP BY run_id, rollout_id
--     HAVING min(COALESCE(verifier, '')) < max(COALESCE(verifier, ''))
--     ORDER BY run_id, rollout_id
--     LIMIT 1
--   ) AS first
--   JOIN (SELECT DISTINCT run_id, rollout_id, verifier FROM scores WHERE call_id IS NULL) AS verified
--     ON verified.run_id = first.run_id AND verified.rollout_id = first.rollout_id
--   GROUP BY verified.run_id, verified.rollout_id
-- @test the newest valid score, and the reason where there is none
--   rollouts {"rollout_id": "a"} {"rollout_id": "b"} {"rollout_id": "c"} {"rollout_id": "d"}
--   scores {"rollout_id": "a", "verifier": "v", "value": 0.5, "score_id": "old", "scored_at": "2026-01-01T00:00:00Z"}
--     {"rollout_id": "a", "verifier": "v", "value": 0.75, "score_id": "new", "scored_at": "2026-01-02T00:00:00Z"}
--     {"rollout_id": "b", "verifier": "v", "value": 1, "is_valid": false}
--     {"rollout_id": "c", "verifier": "v", "value": null}
--   expect {"rollout_id": "a", "value": 0.75, "exclusion_reason": null, "score_ids": ["new"]}
--   expect {"rollout_id": "b", "value": null, "exclusion_reason": "invalid_score"}
--   expect {"rollout_id": "c", "value": null, "exclusion_reason": "null_score"}
--   expect {"rollout_id": "d", "value": null, "exclusion_reason": "no_score"}
-- @test several verifiers need a choice
--   scores {"rollout_id": "a", "verifier": "v", "value": 0.5} {"rollout_id": "a", "verifier": "w", "value": 0.25}
--   error rollout a of run run was scored by several verifiers (v, w)
-- @test one of several verifiers
--   scores {"rollout_id": "a", "verifier": "v", "value": 0.5} {"rollout_id": "a", "verifier": "w", "value": 0.25}
--   param verifier=w
--   expect {"rollout_id": "a", "value": 0.25}
WITH picked AS (
    SELECT run_id, rollout_id, score_id, value, COALESCE(is_valid, true) AS holds
    FROM scores
    WHERE call_id IS NULL AND ($verifier IS NULL OR verifier = $verifier)
)
SELECT
    member.run_id,
    member.rollout_id,
    CASE WHEN picked.holds THEN picked.value END AS value,
    CASE
        WHEN picked.rollout_id IS NULL THEN 'no_score'
        WHEN NOT picked.holds THEN 'invalid_score'
        WHEN picked.value IS NULL THEN 'null_score'
    END AS exclusion_reason,
    CASE WHEN picked.score_id IS NOT NULL THEN make_array(picked.score_id) END AS score_ids
FROM rollouts AS member
LEFT JOIN picked ON picked.run_id = member.run_id AND picked.rollout_id = member.rollout_id
