-- @question Is the raw value behind every reward still on record, as the verifier gave it?
-- @layer scoring
-- @severity error
-- @version 1
-- @outcome violation
-- @needs scores.value, scores.score_id, rewards.value, rewards.score_ids
-- @examined
--   SELECT run_id, count(*) AS examined FROM scores_history GROUP BY run_id
--   UNION ALL
--   SELECT run_id, count(*) FROM rewards GROUP BY run_id
-- @undeclared
--   SELECT credit.run_id, 'scores.value' AS missing,
--       concat('keep what the verifiers gave; ', count(*), ' credits rest on values that no score and no reward holds') AS remedy
--   FROM (SELECT run_id FROM credits WHERE value IS NOT NULL OR token_values IS NOT NULL) AS credit
--   LEFT JOIN (
--       SELECT run_id FROM scores UNION SELECT run_id FROM rewards UNION SELECT run_id FROM token_signals WHERE name LIKE '%reward%'
--   ) AS known ON known.run_id = credit.run_id
--   WHERE known.run_id IS NULL
--   GROUP BY credit.run_id
WITH own AS (
    -- What we derived names its recipe and its snapshot, so that every value of it can be made again.
    SELECT DISTINCT derivation_id FROM derivations WHERE snapshot IS NOT NULL
),
reward AS (
    SELECT
        reward.run_id, reward.derivation_id, reward.name, reward.rollout_id, reward.call_id, reward.value, reward.score_ids
    FROM rewards AS reward
    LEFT ANTI JOIN own ON own.derivation_id = reward.derivation_id
    WHERE reward.value IS NOT NULL
),
scored AS (
    SELECT run_id, rollout_id FROM scores_history WHERE rollout_id IS NOT NULL
    UNION
    -- A reward given token by token is a raw value too.
    SELECT run_id, rollout_id FROM token_signals WHERE name LIKE '%reward%' AND rollout_id IS NOT NULL
),
scored_run AS (
    SELECT DISTINCT run_id FROM scored
),
bare AS (
    SELECT reward.*
    FROM reward
    LEFT ANTI JOIN scored ON scored.run_id = reward.run_id AND scored.rollout_id = reward.rollout_id
    WHERE coalesce(cardinality(reward.score_ids), 0) = 0
),
place AS (
    SELECT run_id, rollout_id, min(step) AS step, min(group_id) AS group_id FROM rollouts GROUP BY run_id, rollout_id
),
overwritten AS (
    SELECT
        run_id, score_id, min(step) AS step, min(group_id) AS group_id, min(rollout_id) AS rollout_id, min(call_id) AS call_id,
        min(verifier) AS verifier, min(value) AS one, max(value) AS other,
        bool_or(value IS NULL) AS has_null
    FROM scores_history
    WHERE score_id IS NOT NULL
    GROUP BY run_id, score_id
    HAVING count(*) > 1 AND (min(value) <> max(value) OR count(value) BETWEEN 1 AND count(*) - 1)
)
SELECT
    bare.run_id, place.step, place.group_id, bare.rollout_id, bare.call_id, bare.derivation_id,
    'a score' AS expected,
    'none' AS observed,
    concat('rollout ', bare.rollout_id, ' has reward ', bare.value, ' in ', bare.name,
        ' and no score: what the verifier gave cannot be found again') AS message
FROM bare
JOIN scored_run ON scored_run.run_id = bare.run_id
LEFT JOIN place ON place.run_id = bare.run_id AND place.rollout_id = bare.rollout_id
-- A 0 that no verifier gave is score/valid's question.
WHERE bare.value <> 0
UNION ALL
SELECT
    run_id, NULL, NULL, min(rollout_id), NULL, derivation_id, 'scores', 'none',
    concat(count(*), ' rewards of ', name, ', first of rollout ', min(rollout_id),
        ', have values, and the run has no score: what the verifiers gave cannot be found again')
FROM bare
LEFT ANTI JOIN scored_run ON scored_run.run_id = bare.run_id
GROUP BY run_id, derivation_id, name
UNION ALL
SELECT
    named.run_id, place.step, place.group_id, named.rollout_id, named.call_id, named.derivation_id, 'a row in scores', 'none',
    concat('the reward of rollout ', named.rollout_id, ' in ', named.name, ' names score ', named.score_id, ', which is not in the lake')
FROM (SELECT run_id, derivation_id, name, rollout_id, call_id, unnest(score_ids) AS score_id FROM reward) AS named
LEFT ANTI JOIN (SELECT DISTINCT run_id, score_id FROM scores_history) AS known
    ON known.run_id = named.run_id AND known.score_id = named.score_id
LEFT JOIN place ON place.run_id = named.run_id AND place.rollout_id = named.rollout_id
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, 'one value', concat_ws(', ', one, CASE WHEN other <> one THEN other END,
        CASE WHEN has_null THEN 'null' END),
    concat('score ', score_id, ' of ', verifier, ' for rollout ', rollout_id, ' was written again with another value: ',
        concat_ws(', ', one, CASE WHEN other <> one THEN other END, CASE WHEN has_null THEN 'null' END))
FROM overwritten
