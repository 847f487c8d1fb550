-- @question Does everything that names a rollout or a call name one that is in the lake?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs rollouts.rollout_id, calls.call_id, environment_records.record_id, builds.build_id, derivations.derivation_id
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM scores_history GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM environment_records GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM token_signals GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM call_payloads GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM rewards_history GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM credits_history GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM samples GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM exclusions GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.rollout_id' AS missing,
--       concat('say to which rollout each call belongs; ', count(*), ' calls do not') AS remedy
--   FROM calls WHERE rollout_id IS NULL GROUP BY run_id
WITH named_rollout AS (
    SELECT 'calls' AS source, run_id, CAST(NULL AS VARCHAR) AS build_id, CAST(NULL AS VARCHAR) AS derivation_id,
        rollout_id, call_id
    FROM calls
    UNION ALL SELECT 'scores', run_id, NULL, NULL, rollout_id, call_id FROM scores_history
    UNION ALL SELECT 'environment_records', run_id, NULL, NULL, rollout_id, call_id FROM environment_records
    UNION ALL SELECT 'token_signals', run_id, NULL, NULL, rollout_id, call_id FROM token_signals
    UNION ALL SELECT 'call_payloads', run_id, NULL, NULL, rollout_id, call_id FROM call_payloads
    UNION ALL SELECT 'rewards', run_id, NULL, derivation_id, rollout_id, call_id FROM rewards_history
    UNION ALL SELECT 'credits', run_id, NULL, derivation_id, rollout_id, call_id FROM credits_history
    UNION ALL SELECT 'samples', run_id, build_id, NULL, rollout_id, NULL FROM samples
    UNION ALL SELECT 'samples.segments', run_id, build_id, NULL, rollout_id, call_id FROM row_segment
    UNION ALL SELECT 'exclusions', run_id, build_id, NULL, rollout_id, call_id FROM exclusions
    UNION ALL
    SELECT 'rollouts.origin_rollout_id', run_id, NULL, NULL, origin_rollout_id, NULL FROM rollouts
    WHERE origin_rollout_id IS NOT NULL
),
named_call AS (
    SELECT source, run_id, build_id, derivation_id, rollout_id, call_id FROM named_rollout
    WHERE source <> 'calls' AND call_id IS NOT NULL
    UNION ALL
    SELECT 'calls.parent_call_id', run_id, NULL, NULL, rollout_id, parent_call_id FROM calls WHERE parent_call_id IS NOT NULL
    UNION ALL
    SELECT 'calls.continues_call_id', run_id, NULL, NULL, rollout_id, continues_call_id FROM calls
    WHERE continues_call_id IS NOT NULL
    UNION ALL
    SELECT 'environment_records.delivered_call_id', run_id, NULL, NULL, rollout_id, delivered_call_id FROM environment_records
    WHERE delivered_call_id IS NOT NULL
    UNION ALL
    SELECT 'rollouts.origin_call_id', run_id, NULL, NULL, rollout_id, origin_call_id FROM rollouts
    WHERE origin_call_id IS NOT NULL
    UNION ALL
    SELECT 'scores.judge_call_ids', run_id, NULL, NULL, rollout_id, judge_call_id
    FROM (SELECT run_id, rollout_id, unnest(judge_call_ids) AS judge_call_id FROM scores_history)
),
lost_record AS (
    SELECT score.run_id, min(score.rollout_id) AS rollout_id, score.record_id, count(*) AS mentions
    FROM (SELECT run_id, rollout_id, unnest(evidence_record_ids) AS record_id FROM scores_history) AS score
    LEFT ANTI JOIN environment_records AS known
        ON known.run_id = score.run_id AND known.record_id = score.record_id
    GROUP BY score.run_id, score.record_id
),
lost_build AS (
    SELECT name.*
    FROM (
        SELECT source, run_id, build_id, count(*) AS mentions
        FROM (
            SELECT 'samples' AS source, run_id, build_id FROM samples
            UNION ALL SELECT 'exclusions', run_id, build_id FROM exclusions
        )
        WHERE build_id IS NOT NULL
        GROUP BY source, run_id, build_id
    ) AS name
    LEFT ANTI JOIN builds AS known ON known.build_id = name.build_id
),
lost_derivation AS (
    SELECT name.*
    FROM (
        SELECT source, run_id, derivation_id, count(*) AS mentions
        FROM (
            SELECT 'rewards' AS source, run_id, derivation_id FROM rewards_history
            UNION ALL SELECT 'credits', run_id, derivation_id FROM credits_history
            UNION ALL SELECT 'builds', run_id, derivation_id FROM builds
        )
        WHERE derivation_id IS NOT NULL
        GROUP BY source, run_id, derivation_id
    ) AS name
    LEFT ANTI JOIN derivations AS known ON known.derivation_id = name.derivation_id
),
-- Only names that nothing answers to are counted, and most lakes have none.
lost_rollout AS (
    SELECT
        name.source, name.run_id, name.build_id, name.derivation_id, name.rollout_id, min(name.call_id) AS call_id,
        count(*) AS mentions
    FROM rollouts AS known
    RIGHT ANTI JOIN named_rollout AS name ON known.run_id = name.run_id AND known.rollout_id = name.rollout_id
    WHERE name.rollout_id IS NOT NULL
    GROUP BY name.source, name.run_id, name.build_id, name.derivation_id, name.rollout_id
),
lost_call AS (
    SELECT
        name.source, name.run_id, name.build_id, name.derivation_id, min(name.rollout_id) AS rollout_id, name.call_id,
        count(*) AS mentions
    FROM calls AS known
    RIGHT ANTI JOIN named_call AS name ON known.run_id = name.run_id AND known.call_id = name.call_id
    GROUP BY name.source, name.run_id, name.build_id, name.derivation_id, name.call_id
)
SELECT
    run_id, build_id, derivation_id, rollout_id,
    CASE WHEN source = 'calls' THEN call_id END AS call_id,
    'a row in rollouts' AS expected,
    'none' AS observed,
    concat(mentions, ' rows of ', source, ' name rollout ', rollout_id, ', which is not in the lake') AS message
FROM lost_rollout
UNION ALL
SELECT
    run_id, build_id, derivation_id, rollout_id, call_id, 'a row in calls', 'none',
    concat(mentions, ' rows of ', source, ' name call ', call_id, ', which is not in the lake')
FROM lost_call
UNION ALL
SELECT
    run_id, NULL, NULL, rollout_id, NULL, 'a row in environment_records', 'none',
    concat(mentions, ' rows of scores name record ', record_id, ' as evidence, which is not in the lake')
FROM lost_record
UNION ALL
SELECT
    run_id, build_id, NULL, NULL, NULL, 'a row in builds', 'none',
    concat(mentions, ' rows of ', source, ' name build ', build_id, ', which is not in the lake')
FROM lost_build
UNION ALL
SELECT
    run_id, NULL, derivation_id, NULL, NULL, 'a row in derivations', 'none',
    concat(mentions, ' rows of ', source, ' name derivation ', derivation_id, ', which is not in the lake')
FROM lost_derivation
