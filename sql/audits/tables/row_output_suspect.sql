-- Calls in a trainer row whose ids or logprobs may be others than they gave: row_output_faults says which.
SELECT DISTINCT used.run_id, used.build_id, used.row_index, used.call_id
FROM row_use AS used
JOIN (
    SELECT run_id, call_id, output_len, output_digest, logprob_digest(output_logprobs) AS logprobs
    FROM calls WHERE output_len IS NOT NULL
) AS call ON call.run_id = used.run_id AND call.call_id = used.call_id
WHERE used.start <> 0
    OR used.length <> call.output_len
    OR used.token_digest <> call.output_digest
    OR used.logprob_digest <> call.logprobs
