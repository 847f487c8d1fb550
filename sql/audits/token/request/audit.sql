-- @question Does each request say what the harness's state says, and what its call records?
-- @layer environment
-- @severity error
-- @version 1
-- @outcome violation
-- @scope rollout
-- @needs calls.request, calls.request_digest, calls.harness_state_record_id, environment_records.content, calls.temperature,
--   calls.top_p, calls.seed
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls WHERE request IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.request' AS missing,
--       concat('keep the requests; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE request IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.harness_state_record_id' AS missing,
--       concat('record the harness''s state before each call; ', count(*), ' calls name none, so that their messages cannot be compared with it')
--           AS remedy
--   FROM calls WHERE request IS NOT NULL AND harness_state_record_id IS NULL GROUP BY run_id
-- @undeclared
--   SELECT call.run_id, 'environment_records.content' AS missing,
--       concat('keep the state''s messages in its record; ', count(*), ' calls name a record without them') AS remedy
--   FROM calls AS call
--   LEFT JOIN (SELECT run_id, record_id FROM environment_records WHERE has_messages(content)) AS state
--       ON state.run_id = call.run_id AND state.record_id = call.harness_state_record_id
--   WHERE call.request IS NOT NULL AND call.harness_state_record_id IS NOT NULL AND state.record_id IS NULL
--   GROUP BY call.run_id
WITH judged AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id,
        request_fault(call.request, state.content) AS fault
    FROM calls AS call
    JOIN environment_records AS state ON state.run_id = call.run_id AND state.record_id = call.harness_state_record_id
    WHERE call.request IS NOT NULL
),
asked AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id,
        unnest([
            named_struct('field', 'temperature', 'recorded', temperature, 'asked', json_get_float(request, 'temperature')),
            named_struct('field', 'top_p', 'recorded', top_p, 'asked', json_get_float(request, 'top_p')),
            named_struct('field', 'seed', 'recorded', CAST(seed AS DOUBLE), 'asked', json_get_float(request, 'seed'))
        ]) AS value
    FROM calls
    WHERE request IS NOT NULL AND (temperature IS NOT NULL OR top_p IS NOT NULL OR seed IS NOT NULL)
)
SELECT
    run_id, step, group_id, rollout_id, call_id, fault['expected'] AS expected, fault['observed'] AS observed,
    concat('message ', fault['index'], ' of the request of ', call_id, ' is not the harness''s') AS message
FROM judged
WHERE fault IS NOT NULL
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, request_digest, NULL,
    concat('the request of ', call_id, ' does not have its digest')
FROM calls
WHERE request IS NOT NULL AND NOT digest_fits(request, request_digest)
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id,
    CAST(value['recorded'] AS VARCHAR), CAST(value['asked'] AS VARCHAR),
    concat('calls.', value['field'], ' of ', call_id, ' is ', value['recorded'], ', and its request asks for ', value['asked'])
FROM asked
WHERE value['recorded'] <> value['asked']
