-- Each score with an input_digest, and whether it is the digest of something that its rollout gave: a call's output, by
-- ids or by text, all texts of the rollout in order, what the source itself digests, or a record of the environment.
WITH score AS (
    SELECT run_id, step, group_id, rollout_id, call_id, score_id, verifier, verifier_version, input_digest
    FROM scores
    WHERE input_digest IS NOT NULL
),
wanted AS (
    SELECT DISTINCT run_id FROM score
),
act AS (
    SELECT call.run_id, call.rollout_id, call.call_id, call.call_index, call.output_digest, call.output_text
    FROM calls AS call
    JOIN wanted ON wanted.run_id = call.run_id
    WHERE coalesce(call.kind, 'act') IN ('act', 'compact') AND call.rollout_id IS NOT NULL
),
said AS (
    SELECT
        run_id, rollout_id, string_agg(output_text, '' ORDER BY call_index, call_id) AS joined,
        string_agg(output_text, chr(10) ORDER BY call_index, call_id) AS lines
    FROM act
    GROUP BY run_id, rollout_id
    HAVING count(output_text) = count(*)
),
form AS (
    SELECT run_id, rollout_id, call_id, output_digest AS digest FROM act WHERE output_digest IS NOT NULL
    UNION ALL
    SELECT run_id, rollout_id, call_id, text_digest(output_text) FROM act WHERE output_text IS NOT NULL
    UNION ALL
    SELECT run_id, rollout_id, NULL, text_digest(joined) FROM said
    UNION ALL
    SELECT run_id, rollout_id, NULL, text_digest(lines) FROM said
    UNION ALL
    SELECT rollout.run_id, rollout.rollout_id, NULL, rollout.output_digest
    FROM rollouts AS rollout JOIN wanted ON wanted.run_id = rollout.run_id
    WHERE rollout.output_digest IS NOT NULL
    UNION ALL
    SELECT record.run_id, record.rollout_id, NULL, record.content_digest
    FROM environment_records AS record JOIN wanted ON wanted.run_id = record.run_id
    WHERE record.content_digest IS NOT NULL AND record.rollout_id IS NOT NULL
),
matched AS (
    SELECT
        score.run_id, score.score_id, score.rollout_id,
        bool_or(form.rollout_id = score.rollout_id
            AND (score.call_id IS NULL OR form.call_id IS NULL OR form.call_id = score.call_id)) AS is_own,
        min(CASE WHEN form.rollout_id <> score.rollout_id THEN form.rollout_id END) AS other
    FROM score
    JOIN form ON form.run_id = score.run_id AND form.digest = score.input_digest
    GROUP BY score.run_id, score.score_id, score.rollout_id
),
judged AS (
    SELECT
        score.*, coalesce(matched.is_own, false) AS is_own, matched.other IS NOT NULL AND NOT matched.is_own AS is_other, matched.other
    FROM score
    LEFT JOIN matched
        ON matched.run_id = score.run_id AND matched.score_id IS NOT DISTINCT FROM score.score_id
        AND matched.rollout_id = score.rollout_id
)
SELECT
    run_id, step, group_id, rollout_id, call_id, score_id, verifier, input_digest, is_own, coalesce(is_other, false) AS is_other, other,
    count(*) FILTER (WHERE is_own) OVER same AS matches,
    count(*) OVER same AS scores
FROM judged
WINDOW same AS (PARTITION BY run_id, verifier, verifier_version)
