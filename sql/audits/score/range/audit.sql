-- @question Are scores, rewards and credits numbers that can be what they say?
-- @layer scoring
-- @severity error
-- @version 1
-- @outcome violation
-- @needs scores.value, rewards.value, credits.value, runs.score_min, runs.score_max
-- @examined
--   SELECT run_id, count(*) AS examined FROM scores GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM rewards GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM credits GROUP BY run_id
-- @undeclared
--   SELECT score.run_id, 'runs.score_min, runs.score_max' AS missing,
--       concat('say between which values a score can lie; ', count(*), ' scores have none to be measured by') AS remedy
--   FROM (SELECT run_id FROM scores WHERE value IS NOT NULL) AS score
--   JOIN (SELECT run_id FROM runs GROUP BY run_id HAVING count(score_min) = 0 AND count(score_max) = 0) AS rule
--     ON rule.run_id = score.run_id
--   GROUP BY score.run_id
WITH rule AS (
    SELECT run_id, max(score_min) AS score_min, min(score_max) AS score_max FROM runs GROUP BY run_id
),
place AS (
    SELECT run_id, rollout_id, min(step) AS step, min(group_id) AS group_id FROM rollouts GROUP BY run_id, rollout_id
),
-- How far apart the values are that a credit compares; an advantage is a few times that at most.
spread AS (
    SELECT run_id, group_id, max(value) - min(value) AS spread
    FROM (
        -- A number less itself is 0, unless it is NaN or infinite.
        SELECT reward.run_id, coalesce(place.group_id, reward.group_id) AS group_id, reward.value
        FROM rewards AS reward
        LEFT JOIN place ON place.run_id = reward.run_id AND place.rollout_id = reward.rollout_id
        WHERE (reward.value - reward.value = 0)
        UNION ALL
        SELECT run_id, group_id, value FROM scores WHERE (value - value = 0)
    )
    GROUP BY run_id, group_id
),
constant AS (
    SELECT
        run_id, verifier, count(DISTINCT rollout_id) AS rollouts, min(value) AS value
    FROM scores
    WHERE value IS NOT NULL AND coalesce(is_valid, true) AND call_id IS NULL
    GROUP BY run_id, verifier
    HAVING min(value) = max(value) AND count(DISTINCT rollout_id) >= 16 AND count(DISTINCT group_id) > 1
)
SELECT
    'violation' AS outcome, run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS derivation_id,
    'a finite value' AS expected,
    CAST(value AS VARCHAR) AS observed,
    concat(verifier, ' gave rollout ', rollout_id, ' the value ', value) AS message
FROM scores
WHERE value IS NOT NULL AND NOT (value - value = 0) AND coalesce(is_valid, true)
UNION ALL
SELECT
    'rule', score.run_id, score.step, score.group_id, score.rollout_id, score.call_id, NULL,
    concat_ws(' ', 'at least ' || CAST(rule.score_min AS VARCHAR), 'at most ' || CAST(rule.score_max AS VARCHAR)),
    CAST(score.value AS VARCHAR),
    concat(score.verifier, ' gave rollout ', score.rollout_id, ' the value ', score.value, ', outside what the run allows')
FROM scores AS score
JOIN rule ON rule.run_id = score.run_id
WHERE (score.value - score.value = 0) AND coalesce(score.is_valid, true)
    AND (score.value < rule.score_min - 1e-9 OR score.value > rule.score_max + 1e-9)
UNION ALL
SELECT
    'rule', constant.run_id, NULL, NULL, NULL, NULL, NULL, concat('values from ', rule.score_min, ' to ', rule.score_max),
    concat(constant.value, ' alone'),
    concat(constant.verifier, ' gave all ', constant.rollouts, ' rollouts ', constant.value, ', where the run has scores from ',
        rule.score_min, ' to ', rule.score_max)
FROM constant
JOIN rule ON rule.run_id = constant.run_id
WHERE rule.score_min < rule.score_max
UNION ALL
SELECT
    'violation', reward.run_id, place.step, place.group_id, reward.rollout_id, reward.call_id, reward.derivation_id, 'a finite value',
    CAST(reward.value AS VARCHAR),
    concat('the reward of rollout ', reward.rollout_id, ' in ', reward.name, ' is ', reward.value)
FROM rewards AS reward
LEFT JOIN place ON place.run_id = reward.run_id AND place.rollout_id = reward.rollout_id
WHERE reward.value IS NOT NULL AND NOT (reward.value - reward.value = 0)
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, derivation_id, 'a finite value', CAST(value AS VARCHAR),
    concat('the credit of rollout ', rollout_id, ' in ', name, ' is ', value)
FROM credits
WHERE value IS NOT NULL AND NOT (value - value = 0)
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, derivation_id, 'finite values', 'NaN or an infinity',
    concat('the credit of rollout ', rollout_id, ' in ', name, ' has a token value that is NaN or infinite')
FROM credits
WHERE token_values IS NOT NULL
    AND (array_has(token_values, CAST('NaN' AS REAL)) OR array_has(token_values, CAST('Infinity' AS REAL))
        OR array_has(token_values, CAST('-Infinity' AS REAL)))
UNION ALL
SELECT
    'violation', credit.run_id, credit.step, credit.group_id, credit.rollout_id, credit.call_id, credit.derivation_id,
    concat('at most ', 100 * greatest(1.0, coalesce(spread.spread, 1.0)), ' in size'), CAST(credit.value AS VARCHAR),
    concat('the advantage of rollout ', credit.rollout_id, ' in ', credit.name, ' is ', credit.value,
        coalesce(concat(', where the values of its group lie ' || CAST(spread.spread AS VARCHAR) || ' apart'), ''),
        ': a divisor near 0')
FROM credits AS credit
LEFT JOIN spread ON spread.run_id = credit.run_id AND spread.group_id IS NOT DISTINCT FROM credit.group_id
WHERE (credit.value - credit.value = 0) AND coalesce(credit.quantity, 'advantage') = 'advantage'
    AND abs(credit.value) > 100 * greatest(1.0, coalesce(spread.spread, 1.0))
