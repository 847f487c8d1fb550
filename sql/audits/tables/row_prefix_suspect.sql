-- Calls in a trainer row before whose trained tokens stands something else than the call saw: row_prefix_breaks says where.
SELECT DISTINCT suspect.run_id, suspect.build_id, suspect.row_index, suspect.call_id
FROM (
    SELECT used.run_id, used.build_id, used.row_index, used.call_id
    FROM row_context AS used
    JOIN calls AS call ON call.run_id = used.run_id AND call.call_id = used.call_id
    WHERE call.prompt_len <> used.prompt_len OR (call.prompt_len IS NOT NULL AND call.prompt_digest <> used.prompt_digest)
    UNION ALL
    -- Outputs are read of the calls alone of which a row has some tokens that do not train.
    SELECT used.run_id, used.build_id, used.row_index, used.call_id
    FROM row_context AS used
    JOIN calls AS call ON call.run_id = used.run_id AND call.call_id = used.call_id
    WHERE used.output_seen IS NOT NULL AND call.prompt_len IS NOT NULL AND output_differs(used.output_seen, call.output_token_ids)
) AS suspect
LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = suspect.run_id AND doubled.call_id = suspect.call_id
