-- @question Is a value that no verifier stands by kept out of rewards and credits?
-- @layer scoring
-- @severity error
-- @version 2
-- @outcome violation
-- @needs scores.is_valid, scores.error_type, scores.value, rewards.score_ids, rewards.exclusion_reason, rollouts.status,
--   runs.credit_rule.null, runs.credit_rule.truncated
-- @examined
--   SELECT run_id, count(*) AS examined FROM scores GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'scores.is_valid' AS missing,
--       concat('say which values the verifiers stand by, or what errors they met; ', count(*) FILTER (WHERE value = 0), ' of ',
--           count(*), ' scores are 0, and which of them are failures of the verifier is not known') AS remedy
--   FROM scores GROUP BY run_id
--   HAVING count(is_valid) = 0 AND count(nullif(error_type, '')) = 0 AND count(*) FILTER (WHERE value = 0) > 0
-- @undeclared
--   SELECT credit.run_id, 'runs.credit_rule.truncated' AS missing,
--       concat('say what a truncated rollout gets: keep, mask or a number; ', count(DISTINCT credit.rollout_id),
--           ' truncated rollouts have a credit') AS remedy
--   FROM (SELECT run_id, rollout_id FROM credits WHERE value IS NOT NULL) AS credit
--   JOIN rollouts AS rollout ON rollout.run_id = credit.run_id AND rollout.rollout_id = credit.rollout_id
--   JOIN (SELECT run_id FROM runs GROUP BY run_id HAVING count(credit_rule['truncated']) = 0) AS rule
--     ON rule.run_id = credit.run_id
--   WHERE rollout.status = 'truncated'
--   GROUP BY credit.run_id
WITH own AS (
    SELECT DISTINCT derivation_id FROM derivations WHERE snapshot IS NOT NULL
),
rule AS (
    SELECT run_id, max(credit_rule['null']) AS on_null, max(credit_rule['truncated']) AS on_truncated FROM runs GROUP BY run_id
),
judged AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, score_id, verifier, value, is_valid, error_type,
        coalesce(is_valid, true) AND coalesce(error_type, '') = '' AND value IS NOT NULL AS is_number,
        CASE
            WHEN coalesce(error_type, '') <> '' THEN concat('met ', error_type)
            WHEN NOT coalesce(is_valid, true) THEN 'is invalid'
            WHEN value IS NULL THEN 'has no value'
        END AS fault
    FROM scores
),
every_score AS (
    SELECT
        run_id, score_id, min(verifier) AS verifier,
        bool_or(coalesce(is_valid, true) AND coalesce(error_type, '') = '' AND value IS NOT NULL) AS is_number,
        min(CASE
            WHEN coalesce(error_type, '') <> '' THEN concat('met ', error_type)
            WHEN NOT coalesce(is_valid, true) THEN 'is invalid'
            WHEN value IS NULL THEN 'has no value'
        END) AS fault
    FROM scores_history WHERE score_id IS NOT NULL GROUP BY run_id, score_id
),
by_rollout AS (
    SELECT
        run_id, rollout_id, count(*) FILTER (WHERE is_number) AS numbers, min(score_id) AS score_id, min(verifier) AS verifier,
        min(fault) AS fault
    FROM judged GROUP BY run_id, rollout_id
),
reward AS (
    SELECT
        reward.run_id, reward.derivation_id, reward.name, reward.rollout_id, reward.call_id, reward.value, reward.score_ids,
        reward.components, own.derivation_id IS NOT NULL AS is_own
    FROM rewards AS reward
    LEFT JOIN own ON own.derivation_id = reward.derivation_id
),
place AS (
    SELECT
        run_id, rollout_id, min(step) AS step, min(group_id) AS group_id, min(status) AS status, min(purpose) AS purpose
    FROM rollouts GROUP BY run_id, rollout_id
),
cut AS (
    SELECT run_id, rollout_id
    FROM (
        SELECT
            run_id, rollout_id, finish_reason,
            row_number() OVER (PARTITION BY run_id, rollout_id ORDER BY call_index DESC, call_id DESC) AS place
        FROM calls WHERE coalesce(kind, 'act') = 'act' AND rollout_id IS NOT NULL
    )
    WHERE place = 1 AND finish_reason = 'length'
    UNION
    SELECT run_id, rollout_id FROM rollouts WHERE status = 'truncated'
),
used AS (
    SELECT named.run_id, named.derivation_id, named.name, named.rollout_id, named.call_id, named.value, score.verifier, score.fault
    FROM (SELECT run_id, derivation_id, name, rollout_id, call_id, value, unnest(score_ids) AS score_id FROM reward) AS named
    JOIN every_score AS score ON score.run_id = named.run_id AND score.score_id = named.score_id
    WHERE NOT score.is_number AND named.value IS NOT NULL
    UNION ALL
    SELECT reward.run_id, reward.derivation_id, reward.name, reward.rollout_id, reward.call_id, reward.value, score.verifier, score.fault
    FROM reward
    JOIN by_rollout AS score ON score.run_id = reward.run_id AND score.rollout_id = reward.rollout_id
    WHERE reward.score_ids IS NULL AND reward.value IS NOT NULL AND score.numbers = 0
    UNION ALL
    SELECT part.run_id, part.derivation_id, part.name, part.rollout_id, part.call_id, part.value, score.verifier, score.fault
    FROM (
        SELECT run_id, derivation_id, name, rollout_id, call_id, value, unnest(map_entries(components)) AS part
        FROM reward WHERE score_ids IS NULL AND value IS NOT NULL
    ) AS part
    JOIN judged AS score
        ON score.run_id = part.run_id AND score.rollout_id = part.rollout_id AND score.verifier = part.part['key']
        AND score.call_id IS NOT DISTINCT FROM part.call_id
    WHERE part.part['value'] IS NOT NULL AND NOT score.is_number
),
-- One finding a reward, whatever names the score.
used_once AS (
    SELECT run_id, derivation_id, name, rollout_id, call_id, value, min(verifier) AS verifier, min(fault) AS fault
    FROM used GROUP BY run_id, derivation_id, name, rollout_id, call_id, value
),
unscored AS (
    SELECT reward.*
    FROM reward
    JOIN (SELECT DISTINCT run_id FROM scores) AS scored_run ON scored_run.run_id = reward.run_id
    LEFT ANTI JOIN (SELECT DISTINCT run_id, rollout_id FROM scores_history WHERE rollout_id IS NOT NULL) AS scored
        ON scored.run_id = reward.run_id AND scored.rollout_id = reward.rollout_id
    WHERE reward.value = 0 AND NOT reward.is_own AND coalesce(cardinality(reward.score_ids), 0) = 0
),
-- Which rewards a credit was made from, where that is certain: those it names, else the run's only ones.
upstream AS (
    SELECT derivation_id, unnest(upstream_derivation_ids) AS reward_id FROM derivations
),
only_reward AS (
    SELECT run_id, min(name) AS name FROM rewards GROUP BY run_id HAVING count(DISTINCT name) = 1
),
credited AS (
    SELECT
        credit.run_id, credit.derivation_id, credit.rollout_id, credit.call_id, credit.value, reward.rollout_id AS rewarded,
        reward.value AS reward, reward.exclusion_reason
    FROM (
        SELECT credit.*, upstream.derivation_id AS names
        FROM credits AS credit
        LEFT JOIN (SELECT DISTINCT derivation_id FROM upstream) AS upstream ON upstream.derivation_id = credit.derivation_id
        WHERE credit.value <> 0
    ) AS credit
    LEFT JOIN (
        SELECT reward.*, upstream.derivation_id AS credit_id
        FROM rewards_history AS reward JOIN upstream ON upstream.reward_id = reward.derivation_id
        UNION ALL
        SELECT reward.*, CAST(NULL AS VARCHAR) AS credit_id
        FROM rewards AS reward JOIN only_reward ON only_reward.run_id = reward.run_id AND only_reward.name = reward.name
    ) AS reward
        ON reward.run_id = credit.run_id AND reward.rollout_id = credit.rollout_id
        AND (reward.call_id IS NULL OR reward.call_id = credit.call_id)
        AND (reward.credit_id = credit.derivation_id OR (reward.credit_id IS NULL AND credit.names IS NULL))
),
all_cut AS (
    SELECT
        score.run_id, score.step, count(DISTINCT score.rollout_id) AS rollouts, min(score.value) AS value,
        min(score.rollout_id) AS rollout_id, min(score.group_id) AS group_id
    FROM judged AS score
    JOIN place ON place.run_id = score.run_id AND place.rollout_id = score.rollout_id
    LEFT JOIN (SELECT DISTINCT run_id, rollout_id FROM cut) AS cut
        ON cut.run_id = score.run_id AND cut.rollout_id = score.rollout_id
    WHERE coalesce(place.purpose, 'train') = 'train' AND score.call_id IS NULL
    GROUP BY score.run_id, score.step
    HAVING count(cut.rollout_id) = count(*) AND count(DISTINCT score.rollout_id) >= 4 AND min(score.value) = max(score.value)
)
SELECT
    'violation' AS outcome, run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS derivation_id,
    'no value, or is_valid false' AS expected,
    CAST(value AS VARCHAR) AS observed,
    concat(verifier, ' met ', error_type, ' on rollout ', rollout_id, ', and its score is ', value, ' as if it had judged') AS message
FROM judged
WHERE coalesce(error_type, '') <> '' AND coalesce(is_valid, true) AND value IS NOT NULL
UNION ALL
SELECT
    'violation', used.run_id, place.step, place.group_id, used.rollout_id, used.call_id, used.derivation_id, 'no reward',
    CAST(used.value AS VARCHAR),
    concat('the reward of rollout ', used.rollout_id, ' in ', used.name, ' is ', used.value, ', and the score of ', used.verifier,
        ' that it rests on ', used.fault)
FROM used_once AS used
LEFT JOIN place ON place.run_id = used.run_id AND place.rollout_id = used.rollout_id
UNION ALL
SELECT
    'violation', unscored.run_id, place.step, place.group_id, unscored.rollout_id, unscored.call_id, unscored.derivation_id,
    'no reward', CAST(unscored.value AS VARCHAR),
    concat('rollout ', unscored.rollout_id, ' has reward 0 in ', unscored.name, ', and no verifier has judged it')
FROM unscored
LEFT JOIN place ON place.run_id = unscored.run_id AND place.rollout_id = unscored.rollout_id
UNION ALL
SELECT
    'violation', credit.run_id, place.step, place.group_id, credit.rollout_id, credit.call_id, credit.derivation_id, 'no credit',
    CAST(credit.value AS VARCHAR),
    concat('rollout ', credit.rollout_id, ' has credit ', credit.value, ', and its reward is null',
        coalesce(concat(' (' || credit.exclusion_reason || ')'), ''))
FROM credited AS credit
LEFT JOIN rule ON rule.run_id = credit.run_id
LEFT JOIN place ON place.run_id = credit.run_id AND place.rollout_id = credit.rollout_id
-- A run may declare the number that a null counts as.
WHERE credit.rewarded IS NOT NULL AND credit.reward IS NULL AND NOT coalesce(regexp_like(rule.on_null, '^[-+0-9.eE]+$'), false)
UNION ALL
SELECT
    'violation', credit.run_id, place.step, place.group_id, credit.rollout_id, credit.call_id, credit.derivation_id, 'no credit',
    CAST(credit.value AS VARCHAR),
    concat('rollout ', credit.rollout_id, ' has credit ', credit.value, ', and its only score, by ', score.verifier, ', ', score.fault)
FROM credited AS credit
JOIN by_rollout AS score ON score.run_id = credit.run_id AND score.rollout_id = credit.rollout_id AND score.numbers = 0
LEFT JOIN place ON place.run_id = credit.run_id AND place.rollout_id = credit.rollout_id
WHERE credit.rewarded IS NULL
UNION ALL
SELECT
    'rule', credit.run_id, place.step, place.group_id, credit.rollout_id, credit.call_id, credit.derivation_id, 'no credit',
    CAST(credit.value AS VARCHAR),
    concat('rollout ', credit.rollout_id, ' was truncated and has credit ', credit.value, ', where the run masks truncated rollouts')
FROM credits AS credit
JOIN rule ON rule.run_id = credit.run_id AND rule.on_truncated = 'mask'
JOIN cut ON cut.run_id = credit.run_id AND cut.rollout_id = credit.rollout_id
LEFT JOIN place ON place.run_id = credit.run_id AND place.rollout_id = credit.rollout_id
WHERE credit.value <> 0
UNION ALL
SELECT
    'rule', reward.run_id, place.step, place.group_id, reward.rollout_id, reward.call_id, reward.derivation_id, rule.on_truncated,
    CAST(reward.value AS VARCHAR),
    concat('rollout ', reward.rollout_id, ' was truncated and has reward ', reward.value, ', where the run gives truncated ones ',
        rule.on_truncated)
FROM reward
JOIN rule ON rule.run_id = reward.run_id AND regexp_like(rule.on_truncated, '^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$')
JOIN cut ON cut.run_id = reward.run_id AND cut.rollout_id = reward.rollout_id
LEFT JOIN place ON place.run_id = reward.run_id AND place.rollout_id = reward.rollout_id
WHERE reward.call_id IS NULL AND abs(reward.value - TRY_CAST(rule.on_truncated AS DOUBLE)) > 1e-6
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, NULL, NULL, 'rollouts that end of themselves', concat('all ', rollouts, ' cut off'),
    concat('all ', rollouts, ' scored rollouts of step ', coalesce(CAST(step AS VARCHAR), '?'), ' were cut off and have the value ', value,
        ': the limit was judged, not the policy')
FROM all_cut
