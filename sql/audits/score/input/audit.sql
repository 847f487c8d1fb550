-- @question Was every verifier given what the policy said, and nothing else?
-- @layer scoring
-- @severity error
-- @version 1
-- @outcome violation
-- @needs scores.input_spans, scores.input_digest, calls.output_text, calls.output_digest, rollouts.output_digest,
--   environment_records.content_digest
-- @examined
--   SELECT run_id, count(*) AS examined FROM scores WHERE input_spans IS NOT NULL OR input_digest IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'scores.input_spans' AS missing,
--       concat('say which tokens were scored, or give input_digest; of ', count(*), ' scores neither is known') AS remedy
--   FROM scores WHERE input_spans IS NULL AND input_digest IS NULL GROUP BY run_id
-- @undeclared
--   SELECT score.run_id, 'scores.input_digest' AS missing,
--       concat('give the digest of a text or output that the lake holds; what ', min(score.verifier), ' digested for ', count(*),
--           ' scores is none of them') AS remedy
--   FROM input_digest_match AS score
--   WHERE score.matches = 0 AND NOT score.is_other
--   GROUP BY score.run_id
WITH score AS (
    SELECT run_id, step, group_id, rollout_id, call_id, score_id, verifier, input_spans, judge_call_ids FROM scores
),
call AS (
    SELECT
        run_id, call_id, min(rollout_id) AS rollout_id, min(prompt_len) AS prompt_len, min(output_len) AS output_len,
        min(sampled_mask) AS sampled_mask
    FROM calls WHERE call_id IS NOT NULL GROUP BY run_id, call_id HAVING count(*) = 1
),
span AS (
    SELECT
        score.run_id, score.step, score.group_id, score.rollout_id, score.score_id, score.verifier,
        coalesce(cardinality(score.judge_call_ids), 0) > 0 AS has_judge,
        coalesce(score.span['call_id'], score.call_id) AS call_id,
        coalesce(score.span['position_in'], 'output') AS position_in,
        score.span['start'] AS start,
        score.span['length'] AS length
    FROM (SELECT *, unnest(input_spans) AS span FROM score) AS score
),
placed AS (
    SELECT
        span.*, call.rollout_id AS call_rollout,
        CASE WHEN span.position_in = 'prompt' THEN call.prompt_len ELSE call.output_len END AS total,
        array_position(slice(call.sampled_mask, span.start, span.length), false) AS unsampled
    FROM span
    LEFT JOIN call ON call.run_id = span.run_id AND call.call_id = span.call_id
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    start AS position,
    position_in,
    length,
    concat('tokens of a call of ', rollout_id) AS expected,
    coalesce(concat('a call of ' || call_rollout), 'no call of the lake') AS observed,
    concat('score ', score_id, ' of rollout ', rollout_id, ' judged tokens of call ', coalesce(call_id, '?'),
        CASE WHEN call_rollout IS NULL THEN ', which is not in the lake' ELSE concat(', which rollout ', call_rollout, ' made') END)
        AS message
FROM placed
WHERE call_rollout IS NULL OR call_rollout <> rollout_id
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, start, position_in, length, concat('within ', total, ' tokens'),
    concat(start, ' to ', start + length),
    concat('score ', score_id, ' judged tokens ', start, ' to ', start + length, ' of the ', position_in, ' of call ', call_id,
        ', which has ', total)
FROM placed
WHERE start < 0 OR length < 0 OR start + length > total
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, start, position_in, length, 'output tokens', 'prompt tokens',
    concat('score ', score_id, ' judged ', length, ' tokens from ', start, ' on of the prompt of call ', call_id,
        ', which that call did not say: a tool or the task may earn the value')
FROM placed
-- A judge that is a model may be shown the conversation.
WHERE position_in = 'prompt' AND NOT has_judge
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, CAST(start + unsampled - 1 AS INTEGER), 'output', 1, 'sampled tokens',
    'a token that was not sampled',
    concat('score ', score_id, ' judged token ', start + unsampled - 1, ' of the output of call ', call_id,
        ', which the policy did not sample')
FROM placed
WHERE position_in = 'output' AND unsampled IS NOT NULL AND NOT has_judge
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, concat('what ', rollout_id, ' gave'), other,
    concat('score ', score_id, ' of ', verifier, ' says it judged rollout ', rollout_id, ', and its input is that of ', other)
FROM input_digest_match
WHERE NOT is_own AND is_other
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, concat('the digest of what ', rollout_id, ' gave'), input_digest,
    concat('score ', score_id, ' of ', verifier, ' for rollout ', rollout_id, ' was given something else than the policy''s output: ',
        matches, ' of the verifier''s ', scores, ' scores match theirs')
FROM input_digest_match
WHERE NOT is_own AND NOT is_other AND 2 * matches >= scores
