-- One row per rollout: how much of it is known exactly, and what that is good for.
--
-- train = every trainable call has engine ids, mask, policy version, and an engine logprob on every sampled token;
-- score = it has text or ids, and a status; else read.
SELECT
    run_id,
    step,
    group_id,
    rollout_id,
    call_count,
    trainable_call_count,
    sampled_token_count,
    exact_ids_calls / nullif(call_count, 0) AS exact_ids_call_share,
    mask_calls / nullif(call_count, 0) AS mask_call_share,
    logprob_calls / nullif(call_count, 0) AS engine_logprob_call_share,
    version_calls / nullif(call_count, 0) AS policy_version_call_share,
    encoding_calls / nullif(call_count, 0) AS encoding_call_share,
    record_calls / nullif(call_count, 0) AS record_call_share,
    exact_ids_tokens / nullif(sampled_token_count, 0) AS exact_ids_token_share,
    logprob_tokens / nullif(sampled_token_count, 0) AS engine_logprob_token_share,
    version_tokens / nullif(sampled_token_count, 0) AS policy_version_token_share,
    encoding_tokens / nullif(sampled_token_count, 0) AS encoding_token_share,
    CASE
        WHEN trainable_call_count > 0 AND trainable_ready_count = trainable_call_count THEN 'train'
        WHEN content_calls > 0 AND status IS NOT NULL THEN 'score'
        ELSE 'read'
    END AS verdict,
    CASE
        WHEN trainable_call_count > 0 AND trainable_ready_count = trainable_call_count THEN NULL
        WHEN call_count = 0 THEN 'it has no call'
        WHEN trainable_call_count = 0 THEN 'no call is trainable'
        ELSE concat_ws(
            ', ',
            CASE WHEN without_ids > 0 THEN concat(without_ids, ' trainable calls without engine ids') END,
            CASE WHEN without_mask > 0 THEN concat(without_mask, ' trainable calls with a mask of another length') END,
            CASE WHEN without_version > 0 THEN concat(without_version, ' trainable calls without policy version') END,
            CASE WHEN without_logprobs > 0 THEN concat(without_logprobs, ' trainable calls without an engine logprob on every sampled token') END,
            CASE WHEN content_calls = 0 THEN 'neither text nor ids' END,
            CASE WHEN status IS NULL THEN 'no status' END
        )
    END AS why
FROM (
    SELECT
        r.run_id,
        r.step,
        r.group_id,
        r.rollout_id,
        max(r.status) AS status,
        count(c.call_id) AS call_count,
        count(*) FILTER (WHERE c.trainable) AS trainable_call_count,
        count(*) FILTER (WHERE c.trainable AND c.has_ids AND c.has_mask AND c.has_version AND c.has_logprobs) AS trainable_ready_count,
        count(*) FILTER (WHERE c.trainable AND NOT c.has_ids) AS without_ids,
        count(*) FILTER (WHERE c.trainable AND NOT c.has_mask) AS without_mask,
        count(*) FILTER (WHERE c.trainable AND NOT c.has_version) AS without_version,
        count(*) FILTER (WHERE c.trainable AND NOT c.has_logprobs) AS without_logprobs,
        count(*) FILTER (WHERE c.has_content) AS content_calls,
        CAST(count(*) FILTER (WHERE c.has_ids) AS DOUBLE) AS exact_ids_calls,
        CAST(count(*) FILTER (WHERE c.has_mask) AS DOUBLE) AS mask_calls,
        CAST(count(*) FILTER (WHERE c.has_logprobs) AS DOUBLE) AS logprob_calls,
        CAST(count(*) FILTER (WHERE c.has_version) AS DOUBLE) AS version_calls,
        CAST(count(*) FILTER (WHERE c.has_encoding) AS DOUBLE) AS encoding_calls,
        CAST(count(*) FILTER (WHERE e.call_id IS NOT NULL) AS DOUBLE) AS record_calls,
        coalesce(sum(c.sampled), 0) AS sampled_token_count,
        CAST(sum(c.sampled) FILTER (WHERE c.has_ids) AS DOUBLE) AS exact_ids_tokens,
        CAST(sum(c.engine_logprobs) AS DOUBLE) AS logprob_tokens,
        CAST(sum(c.sampled) FILTER (WHERE c.has_version) AS DOUBLE) AS version_tokens,
        CAST(sum(c.sampled) FILTER (WHERE c.has_encoding) AS DOUBLE) AS encoding_tokens
    FROM rollouts AS r
    LEFT JOIN (
        SELECT
            run_id,
            rollout_id,
            call_id,
            coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact')) AS trainable,
            coalesce(prompt_exactness = 'engine' AND output_exactness = 'engine', false)
                AND prompt_len IS NOT NULL AND output_len IS NOT NULL AS has_ids,
            output_len IS NOT NULL AND (sampled_mask IS NULL OR cardinality(sampled_mask) = output_len) AS has_mask,
            policy_version IS NOT NULL OR coalesce(cardinality(policy_spans), 0) > 0 AS has_version,
            encoding_id IS NOT NULL AS has_encoding,
            output_text IS NOT NULL OR output_len IS NOT NULL OR response IS NOT NULL AS has_content,
            sampled_count(output_len, sampled_mask) AS sampled,
            CASE
                WHEN logprobs_source = 'engine' THEN sampled_logprob_count(output_len, sampled_mask, output_logprobs)
                ELSE 0
            END AS engine_logprobs,
            coalesce(
                logprobs_source = 'engine'
                AND sampled_logprob_count(output_len, sampled_mask, output_logprobs) = sampled_count(output_len, sampled_mask),
                false
            ) AS has_logprobs
        FROM calls
    ) AS c ON r.run_id = c.run_id AND r.rollout_id = c.rollout_id
    LEFT JOIN (
        SELECT DISTINCT run_id, rollout_id, call_id FROM environment_records WHERE call_id IS NOT NULL
    ) AS e ON c.run_id = e.run_id AND c.rollout_id = e.rollout_id AND c.call_id = e.call_id
    GROUP BY r.run_id, r.step, r.group_id, r.rollout_id
)
