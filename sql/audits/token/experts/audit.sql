-- @question Are the routing records those of the call's own tokens?
-- @layer policy
-- @severity error
-- @version 1
-- @outcome violation
-- @needs call_payloads.values, call_payloads.blob, call_payloads.shape, call_payloads.dtype
-- @examined
--   SELECT run_id, count(*) AS examined FROM call_payloads WHERE name = 'routed_experts' GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'call_payloads.shape' AS missing,
--       concat('record the payload''s shape: tokens, layers, experts a token; ', count(*), ' payloads have none') AS remedy
--   FROM call_payloads WHERE name = 'routed_experts' AND coalesce(cardinality(shape), 0) = 0 GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'call_payloads.values' AS missing,
--       concat('keep the array in the row or as a blob of the lake; ', count(*), ' payloads cannot be read') AS remedy
--   FROM routing_fault WHERE kind = 'unread' GROUP BY run_id
WITH call AS (
    SELECT run_id, rollout_id, call_id, min(step) AS step, min(group_id) AS group_id, max(prompt_len) AS prompt_len
    FROM calls GROUP BY run_id, rollout_id, call_id
),
found AS (
    SELECT run_id, rollout_id, call_id, kind, position, length, expected, observed FROM routing_fault WHERE kind <> 'unread'
    UNION ALL
    -- Layers and experts a token are the model's, so they are equal in a run.
    SELECT
        payload.run_id, payload.rollout_id, payload.call_id, 'model', NULL, NULL, 'one shape of layers and experts in a run',
        payload.inner_shape
    FROM (
        SELECT
            run_id, rollout_id, call_id, array_to_string(array_slice(shape, 2, CAST(cardinality(shape) AS BIGINT)), ' x ') AS inner_shape,
            count(*) OVER (PARTITION BY run_id, array_to_string(array_slice(shape, 2, CAST(cardinality(shape) AS BIGINT)), ' x ')) AS alike,
            count(*) OVER (PARTITION BY run_id) AS payloads
        FROM call_payloads WHERE name = 'routed_experts' AND cardinality(shape) > 1
    ) AS payload
    WHERE 2 * payload.alike < payload.payloads
)
SELECT
    found.run_id, call.step, call.group_id, found.rollout_id, found.call_id,
    CASE WHEN found.position >= call.prompt_len THEN found.position - call.prompt_len ELSE found.position END AS position,
    CASE WHEN found.position >= call.prompt_len THEN 'output' WHEN found.position IS NOT NULL THEN 'prompt' END AS position_in,
    found.length, found.expected, found.observed,
    CASE found.kind
        WHEN 'repeated' THEN
            concat(found.length, ' tokens from context token ', found.position, ' of ', found.call_id, ' have one and the same routing over all layers: ',
                found.observed, ', as rows have that were filled')
        WHEN 'doubled' THEN
            concat(found.length, ' tokens from context token ', found.position, ' of ', found.call_id,
                ' were routed to one expert more than once in a layer: ', found.observed)
        WHEN 'negative' THEN
            concat(found.length, ' tokens from context token ', found.position, ' of ', found.call_id, ' have negative experts: ', found.observed)
        WHEN 'copied' THEN
            concat(found.length, ' tokens from context token ', found.position, ' of ', found.call_id, ' have, number for number, the routing of other tokens: ',
                found.observed)
        WHEN 'model' THEN
            concat('the routing of ', found.call_id, ' has ', found.observed, ' layers and experts a token, unlike most of the run')
        ELSE concat('the routing of ', found.call_id, ' has ', found.observed, ' numbers where its shape holds ', found.expected)
    END AS message
FROM found
LEFT JOIN call
    ON call.run_id = found.run_id AND call.call_id = found.call_id
    AND (found.rollout_id IS NULL OR call.rollout_id = found.rollout_id)
