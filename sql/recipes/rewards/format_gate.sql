-- @kind reward
-- @doc A reward that counts only where another verifier's score reaches a threshold: format gates, penalties to zero. A
--   rollout without a reward stays without one; a NaN reward is left as it is.
-- @formula r' = r where score >= threshold, else otherwise
-- @source NeMo RL and verl reward managers set the reward to 0 for malformed, empty or repeated answers
-- @param verifier string : verifier of the gate
-- @param threshold double = 1 : least score that passes
-- @param otherwise double = 0 : reward of what does not pass; null = none, with the reason gate
-- @param missing string = fail : what no valid score of the verifier means: fail, pass, or null for no reward
-- @check no score comes from verifier {verifier}
--   SELECT $verifier AS verifier
--   FROM (SELECT count(*) AS known FROM scores WHERE verifier = $verifier AND call_id IS NULL)
--   WHERE known = 0
-- @check missing is fail, pass or null, not {missing}
--   SELECT $missing AS missing WHERE $missing NOT IN ('fail', 'pass')
-- @test what passes keeps its reward
--   reward {"rollout_id": "a", "value": 0.75} {"rollout_id": "b", "value": 0.75} {"rollout_id": "c", "value": 0.75}
--     {"rollout_id": "d", "value": null, "exclusion_reason": "no_score"}
--   scores {"rollout_id": "a", "verifier": "format", "value": 1} {"rollout_id": "b", "verifier": "format", "value": 0.5}
--     {"rollout_id": "c", "verifier": "format", "value": 1, "is_valid": false}
--     {"rollout_id": "d", "verifier": "format", "value": 0}
--   param verifier=format
--   expect {"rollout_id": "a", "value": 0.75} {"rollout_id": "b", "value": 0} {"rollout_id": "c", "value": 0}
--   expect {"rollout_id": "d", "value": null, "exclusion_reason": "no_score"}
-- @test no score and no reward behind the gate
--   reward {"rollout_id": "a", "value": 0.75} {"rollout_id": "b", "value": 0.75}
--   scores {"rollout_id": "a", "verifier": "format", "value": 0}
--   param verifier=format
--   param missing=null
--   param otherwise=null
--   expect {"rollout_id": "a", "value": null, "exclusion_reason": "gate:format"}
--   expect {"rollout_id": "b", "value": null, "exclusion_reason": "no_score:format"}
-- @test an unknown verifier
--   reward {"rollout_id": "a", "value": 0.75}
--   param verifier=format
--   error no score comes from verifier format
WITH judged AS (
    SELECT
        reward.*,
        CASE
            WHEN gate.value IS NOT NULL AND COALESCE(gate.is_valid, true) THEN gate.value >= $threshold
            WHEN $missing = 'pass' THEN true
            WHEN $missing = 'fail' THEN false
        END AS passes
    FROM reward
    LEFT JOIN (SELECT run_id, rollout_id, value, is_valid FROM scores WHERE verifier = $verifier AND call_id IS NULL) AS gate
        ON gate.run_id = reward.run_id AND gate.rollout_id = reward.rollout_id
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE WHEN value IS NULL OR passes IS NULL THEN NULL WHEN passes THEN value ELSE $otherwise END AS value,
    CASE
        WHEN value IS NULL THEN exclusion_reason
        WHEN passes IS NULL THEN 'no_score:' || $verifier
        WHEN NOT passes AND $otherwise IS NULL THEN 'gate:' || $verifier
    END AS exclusion_reason,
    components,
    score_ids
FROM judged
