-- Stretches of sampled outputs that chance does not give twice, by the hash of their tokens.
SELECT
    run_id, step, group_id, rollout_id, call_id, call_index, stretch['hash'] AS hash, stretch['length'] AS length,
    stretch['position'] AS position
FROM (
    SELECT
        run_id, step, group_id, rollout_id, call_id, call_index,
        unnest(unlikely_stretches(output_token_ids, output_logprobs, 40)) AS stretch
    FROM calls
    WHERE output_len > 0 AND rollout_id IS NOT NULL AND coalesce(temperature, 1) >= 0.5 AND output_logprobs IS NOT NULL
        AND coalesce(kind, 'act') IN ('act', 'compact')
)
