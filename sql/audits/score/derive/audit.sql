-- @question Is every reward and credit what its recipe, the run's rule or a known formula gives?
-- @layer credit
-- @severity error
-- @version 2
-- @outcome violation
-- @needs derivations.recipe, derivations.snapshot, derivations.functions, derivations.upstream_derivation_ids, rewards.value,
--   rewards.components, credits.value, credits.token_values, scores.value, token_signals.values, runs.credit_rule
-- @examined
--   SELECT run_id, count(*) AS examined FROM rewards GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM credits GROUP BY run_id
-- @undeclared
--   SELECT run_id, derivation_id, missing, remedy FROM rederived WHERE missing IS NOT NULL
SELECT
    outcome, run_id, step, group_id, rollout_id, call_id, derivation_id, position,
    CASE WHEN position IS NOT NULL THEN 'output' END AS position_in,
    length, expected, observed, message
FROM rederived
WHERE missing IS NULL
UNION ALL
-- A reward rests on scores of its own rollout; a comparison, and what one rollout makes of another, may stand for several.
SELECT
    'violation', named.run_id, place.step, place.group_id, named.rollout_id, named.call_id, named.derivation_id, NULL, NULL, NULL,
    concat('a score of ', named.rollout_id), concat('one of ', score.rollout_id),
    concat('the reward of rollout ', named.rollout_id, ' in ', named.name, ' rests on score ', named.score_id, ', which ', score.verifier,
        ' gave rollout ', score.rollout_id)
FROM (
    SELECT run_id, derivation_id, name, rollout_id, call_id, unnest(score_ids) AS score_id FROM rewards WHERE rollout_id IS NOT NULL
) AS named
JOIN (
    SELECT run_id, score_id, min(rollout_id) AS rollout_id, min(verifier) AS verifier FROM scores_history
    WHERE score_id IS NOT NULL AND rollout_id IS NOT NULL AND comparison_id IS NULL
    GROUP BY run_id, score_id HAVING count(DISTINCT rollout_id) = 1
) AS score ON score.run_id = named.run_id AND score.score_id = named.score_id
LEFT JOIN (
    SELECT run_id, rollout_id, min(step) AS step, min(group_id) AS group_id, min(coalesce(origin_rollout_id, rollout_id)) AS family
    FROM rollouts GROUP BY run_id, rollout_id
) AS place ON place.run_id = named.run_id AND place.rollout_id = named.rollout_id
LEFT JOIN (
    SELECT run_id, rollout_id, min(coalesce(origin_rollout_id, rollout_id)) AS family FROM rollouts GROUP BY run_id, rollout_id
) AS other ON other.run_id = score.run_id AND other.rollout_id = score.rollout_id
WHERE score.rollout_id <> named.rollout_id
    AND coalesce(place.family, named.rollout_id) <> coalesce(other.family, score.rollout_id)
