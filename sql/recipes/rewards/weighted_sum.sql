-- @kind reward
-- @doc A weighted sum over verifiers, less a penalty for long outputs. A weighted verifier that is missing or invalid leaves
--   the rollout without a reward, and is named in the reason; or it is left out of the sum, or counts as zero.
-- @formula reward = sum over verifiers of weights[verifier] * value - length_penalty * max(0, output tokens - free_tokens);
--   output tokens are those of the rollout's trainable calls
-- @source missing skip: TRL's nansum over reward functions (no score at all: no reward); missing null: verifiers' and NeMo's sums, which need every part
-- @param weights json : verifier to weight, as {"correct": 1, "format": 0.2}
-- @param length_penalty double = 0 : taken off for each output token above free_tokens
-- @param free_tokens long = 0 : output tokens that cost nothing
-- @param missing string = null : what a missing or invalid score means: null (no reward), skip (left out, but for no score at all), or zero
-- @check missing is null, skip or zero, not {missing}
--   SELECT $missing AS missing WHERE $missing NOT IN ('skip', 'zero')
-- @check weights must be an object of verifiers and numbers, such as {"correct": 1, "format": 0.2}; {what} is not
--   SELECT $weights AS what
--   WHERE $weights IS NULL OR COALESCE(json_length($weights), 0) = 0 OR json_object_keys($weights) IS NULL
-- @check the weight of verifier {verifier} is no number
--   SELECT verifier
--   FROM (SELECT unnest(json_object_keys($weights)) AS verifier)
--   WHERE json_get_float($weights, verifier) IS NULL
--   ORDER BY verifier
--   LIMIT 1
-- @check no score comes from verifier {verifier}, which has a weight
--   SELECT weighted.verifier
--   FROM (SELECT unnest(json_object_keys($weights)) AS verifier) AS weighted
--   LEFT JOIN (SELECT DISTINCT verifier FROM scores WHERE call_id IS NULL) AS known ON known.verifier = weighted.verifier
--   WHERE known.verifier IS NULL
--   ORDER BY weighted.verifier
--   LIMIT 1
-- @test a sum of two verifiers, less 0.5 for each of 2 tokens above 3
--   scores {"rollout_id": "a", "verifier": "v", "value": 1} {"rollout_id": "a", "verifier": "w", "value": 0.5}
--     {"rollout_id": "b", "verifier": "v", "value": 1} {"rollout_id": "b", "verifier": "w", "value": 1, "is_valid": false}
--     {"rollout_id": "c", "verifier": "w", "value": 1}
--   calls {"rollout_id": "a", "call_id": "a0", "output_len": 5}
--   param weights={"v": 2, "w": -1}
--   param length_penalty=0.5
--   param free_tokens=3
--   expect {"rollout_id": "a", "value": 0.5, "components": {"v": 2, "w": -0.5, "length_penalty": -1}}
--   expect {"rollout_id": "b", "value": null, "exclusion_reason": "invalid_score:w"}
--   expect {"rollout_id": "c", "value": null, "exclusion_reason": "no_score:v"}
-- @test missing scores are skipped, unless there is none
--   rollouts {"rollout_id": "a"} {"rollout_id": "b"} {"rollout_id": "c"}
--   scores {"rollout_id": "a", "verifier": "v", "value": 1} {"rollout_id": "c", "verifier": "w", "value": null}
--   param weights={"v": 2, "w": -1}
--   param missing=skip
--   expect {"rollout_id": "a", "value": 2, "exclusion_reason": null} {"rollout_id": "b", "value": null}
--   expect {"rollout_id": "c", "value": null, "exclusion_reason": "no_score:v"}
-- @test missing scores are zero
--   rollouts {"rollout_id": "a"} {"rollout_id": "b"}
--   scores {"rollout_id": "a", "verifier": "v", "value": 1} {"rollout_id": "a", "verifier": "w", "value": 3, "is_valid": false}
--   param weights={"v": 2, "w": -1}
--   param missing=zero
--   expect {"rollout_id": "a", "value": 2, "exclusion_reason": null} {"rollout_id": "b", "value": 0}
-- @test a weight that is no number
--   scores {"rollout_id": "a", "verifier": "v", "value": 1}
--   param weights={"v": "x"}
--   error the weight of verifier v is no number
WITH weighted AS (
    SELECT verifier, json_get_float($weights, verifier) AS weight
    FROM (SELECT unnest(json_object_keys($weights)) AS verifier)
),
wanted AS (
    SELECT member.run_id, member.rollout_id, weighted.verifier, weighted.weight
    FROM rollouts AS member CROSS JOIN weighted
),
judged AS (
    SELECT
        wanted.run_id,
        wanted.rollout_id,
        wanted.verifier,
        score.score_id,
        CASE WHEN COALESCE(score.is_valid, true) THEN wanted.weight * score.value END AS part,
        CASE
            WHEN score.rollout_id IS NULL THEN 'no_score'
            WHEN NOT COALESCE(score.is_valid, true) THEN 'invalid_score'
            WHEN score.value IS NULL THEN 'null_score'
        END AS fault
    FROM wanted
    LEFT JOIN (SELECT * FROM scores WHERE call_id IS NULL) AS score
        ON score.run_id = wanted.run_id AND score.rollout_id = wanted.rollout_id AND score.verifier = wanted.verifier
),
summed AS (
    SELECT
        run_id,
        rollout_id,
        CASE WHEN $missing = 'zero' THEN COALESCE(exact_sum(part), 0.0) ELSE exact_sum(part) END AS total,
        CASE
            WHEN $missing = 'zero' OR ($missing = 'skip' AND count(part) > 0) THEN NULL
            ELSE min(fault || ':' || verifier)
        END AS fault,
        array_agg(verifier ORDER BY verifier) AS verifiers,
        array_agg(part ORDER BY verifier) AS parts,
        array_agg(score_id ORDER BY verifier) FILTER (WHERE score_id IS NOT NULL) AS score_ids
    FROM judged
    GROUP BY run_id, rollout_id
),
lengths AS (
    SELECT run_id, rollout_id, sum(CAST(output_len AS BIGINT)) AS output_tokens
    FROM calls
    WHERE COALESCE(is_trainable, COALESCE(kind, 'act') IN ('act', 'compact'))
    GROUP BY run_id, rollout_id
),
penalized AS (
    SELECT
        summed.*,
        $length_penalty * greatest(CAST(0 AS BIGINT), COALESCE(lengths.output_tokens, 0) - $free_tokens) AS penalty
    FROM summed
    LEFT JOIN lengths ON lengths.run_id = summed.run_id AND lengths.rollout_id = summed.rollout_id
)
SELECT
    run_id,
    rollout_id,
    CASE WHEN fault IS NULL THEN total - penalty END AS value,
    fault AS exclusion_reason,
    map(array_append(verifiers, 'length_penalty'), array_append(parts, 0.0 - penalty)) AS components,
    score_ids
FROM penalized
