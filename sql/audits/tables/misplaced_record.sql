-- Records of the environment that name a call of another rollout or place than they stand in, as their cause or as the one
-- they were delivered to.
WITH single AS (
    SELECT call.run_id, call.call_id, call.rollout_id, call.call_index
    FROM calls AS call
    LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = call.run_id AND doubled.call_id = call.call_id
    WHERE call.call_id IS NOT NULL
)
SELECT
    record.run_id, record.step, record.group_id, record.rollout_id, record.record_id, record.call_id, record.call_index,
    record.delivered_call_id, cause.rollout_id AS cause_rollout, cause.call_index AS cause_index,
    delivered.rollout_id AS delivered_rollout, delivered.call_index AS delivered_index
FROM environment_records AS record
LEFT JOIN single AS cause ON cause.run_id = record.run_id AND cause.call_id = record.call_id
LEFT JOIN single AS delivered ON delivered.run_id = record.run_id AND delivered.call_id = record.delivered_call_id
WHERE cause.rollout_id <> record.rollout_id OR cause.call_index <> record.call_index OR delivered.rollout_id <> record.rollout_id
    OR delivered.call_index <= coalesce(cause.call_index, record.call_index)
