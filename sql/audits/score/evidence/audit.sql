-- @question Did every verifier look at records of the rollout that it judged, when they were there?
-- @layer scoring
-- @severity error
-- @version 1
-- @outcome violation
-- @needs scores.evidence_record_ids, scores.judge_call_ids, scores.scored_at, scores.call_id, environment_records.call_id,
--   calls.finished_at
-- @examined
--   SELECT run_id, count(*) AS examined FROM scores_history GROUP BY run_id
-- @undeclared
--   SELECT score.run_id, 'scores.evidence_record_ids' AS missing,
--       concat('say which records each verifier looked at; of ', score.scores, ' scores none says it, and the run has records') AS remedy
--   FROM (
--       SELECT run_id, count(*) AS scores FROM scores GROUP BY run_id HAVING count(evidence_record_ids) = 0
--   ) AS score
--   JOIN (SELECT DISTINCT run_id FROM environment_records) AS kept ON kept.run_id = score.run_id
-- @undeclared
--   SELECT run_id, 'scores.scored_at' AS missing,
--       concat('say when each verifier judged; whether ', count(*), ' scores came after what they rest on is not known') AS remedy
--   FROM scores WHERE evidence_record_ids IS NOT NULL GROUP BY run_id HAVING count(scored_at) = 0
WITH call AS (
    SELECT call.run_id, call.call_id, call.rollout_id, call.finished_at, call.started_at
    FROM calls AS call
    LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = call.run_id AND doubled.call_id = call.call_id
    WHERE call.call_id IS NOT NULL
),
-- What one rollout makes of another (a fork, a subagent) is one family.
family AS (
    SELECT run_id, rollout_id, min(coalesce(origin_rollout_id, rollout_id)) AS family FROM rollouts GROUP BY run_id, rollout_id
),
score AS (
    SELECT
        score.run_id, score.step, score.group_id, score.rollout_id, score.call_id, score.score_id, score.verifier, score.scored_at,
        score.evidence_record_ids, score.judge_call_ids, score.comparison_id, coalesce(family.family, score.rollout_id) AS family
    FROM scores_history AS score
    LEFT JOIN family ON family.run_id = score.run_id AND family.rollout_id = score.rollout_id
),
evidence AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, score_id, verifier, scored_at, family, comparison_id,
        unnest(evidence_record_ids) AS record_id
    FROM score
),
-- Records that scores rest on, where only one has the id.
record AS (
    SELECT record.run_id, record.record_id, min(record.rollout_id) AS rollout_id, min(record.call_id) AS call_id
    FROM (SELECT DISTINCT run_id, record_id FROM evidence WHERE record_id IS NOT NULL) AS named
    JOIN environment_records AS record ON record.run_id = named.run_id AND record.record_id = named.record_id
    GROUP BY record.run_id, record.record_id
    HAVING count(*) = 1
),
judge AS (
    SELECT run_id, step, group_id, rollout_id, score_id, verifier, scored_at, unnest(judge_call_ids) AS call_id FROM score
),
last_act AS (
    SELECT run_id, rollout_id, max(finished_at) AS finished_at
    FROM calls
    WHERE coalesce(kind, 'act') IN ('act', 'compact') AND rollout_id IS NOT NULL AND finished_at IS NOT NULL
    GROUP BY run_id, rollout_id
)
SELECT
    evidence.run_id, evidence.step, evidence.group_id, evidence.rollout_id, evidence.call_id,
    'a record of the lake' AS expected,
    'none' AS observed,
    concat('score ', evidence.score_id, ' of rollout ', evidence.rollout_id, ' rests on record ', evidence.record_id,
        ', which is not in the lake') AS message
FROM evidence
LEFT ANTI JOIN environment_records AS known ON known.run_id = evidence.run_id AND known.record_id = evidence.record_id
UNION ALL
SELECT
    evidence.run_id, evidence.step, evidence.group_id, evidence.rollout_id, evidence.call_id, concat('a record of ', evidence.rollout_id),
    concat('one of ', record.rollout_id),
    concat('score ', evidence.score_id, ' of rollout ', evidence.rollout_id, ' rests on record ', evidence.record_id,
        ', which rollout ', record.rollout_id, ' left')
FROM evidence
JOIN record ON record.run_id = evidence.run_id AND record.record_id = evidence.record_id
LEFT JOIN family ON family.run_id = record.run_id AND family.rollout_id = record.rollout_id
-- A comparison looks at several rollouts.
WHERE evidence.comparison_id IS NULL AND record.rollout_id <> evidence.rollout_id
    AND coalesce(family.family, record.rollout_id) <> evidence.family
UNION ALL
SELECT
    evidence.run_id, evidence.step, evidence.group_id, evidence.rollout_id, evidence.call_id,
    concat('after ', coalesce(call.finished_at, call.started_at)), CAST(evidence.scored_at AS VARCHAR),
    concat('score ', evidence.score_id, ' of rollout ', evidence.rollout_id, ' rests on record ', evidence.record_id, ', which call ',
        record.call_id, ' caused after it was given')
FROM evidence
JOIN record ON record.run_id = evidence.run_id AND record.record_id = evidence.record_id
JOIN call ON call.run_id = record.run_id AND call.call_id = record.call_id
WHERE evidence.scored_at < coalesce(call.finished_at, call.started_at)
UNION ALL
SELECT
    score.run_id, score.step, score.group_id, score.rollout_id, score.call_id, concat('a call of ', score.rollout_id),
    concat('one of ', call.rollout_id),
    concat('score ', score.score_id, ' of rollout ', score.rollout_id, ' judges call ', score.call_id, ', which rollout ',
        call.rollout_id, ' made')
FROM score
JOIN call ON call.run_id = score.run_id AND call.call_id = score.call_id
LEFT JOIN family ON family.run_id = call.run_id AND family.rollout_id = call.rollout_id
WHERE call.rollout_id <> score.rollout_id AND coalesce(family.family, call.rollout_id) <> score.family
UNION ALL
SELECT
    judge.run_id, judge.step, judge.group_id, judge.rollout_id, judge.call_id, concat('before ', judge.scored_at),
    CAST(call.finished_at AS VARCHAR),
    concat('score ', judge.score_id, ' of rollout ', judge.rollout_id, ' was given before call ', judge.call_id,
        ' of its judge was complete')
FROM judge
JOIN call ON call.run_id = judge.run_id AND call.call_id = judge.call_id
WHERE call.finished_at > judge.scored_at
UNION ALL
SELECT
    score.run_id, score.step, score.group_id, score.rollout_id, NULL, concat('after ', last_act.finished_at),
    CAST(score.scored_at AS VARCHAR),
    concat('rollout ', score.rollout_id, ' was scored by ', score.verifier, ' before its last call was complete')
FROM score
JOIN last_act ON last_act.run_id = score.run_id AND last_act.rollout_id = score.rollout_id
WHERE score.call_id IS NULL AND score.scored_at < last_act.finished_at
