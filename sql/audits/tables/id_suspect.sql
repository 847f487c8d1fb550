-- Calls with an id outside of what is declared, by the range of their ids. Tokens shared with an earlier context were judged there.
WITH sampler AS (
    SELECT DISTINCT run_id, encoding_id, coalesce(policy_id, 'policy') AS policy_id FROM calls
),
declared AS (
    SELECT
        sampler.run_id, sampler.encoding_id, sampler.policy_id, run.vocab_size, own.vocab_size AS policy_vocab_size,
        encoding.vocab_size AS named_size
    FROM sampler
    LEFT JOIN (SELECT run_id, max(vocab_size) AS vocab_size FROM runs GROUP BY run_id) AS run ON run.run_id = sampler.run_id
    LEFT JOIN policy_vocab AS own ON own.run_id = sampler.run_id AND own.policy_id = sampler.policy_id
    LEFT JOIN (SELECT encoding_id, max(vocab_size) AS vocab_size FROM encodings GROUP BY encoding_id) AS encoding
        ON encoding.encoding_id = sampler.encoding_id
)
SELECT
    call.run_id, call.rollout_id, call.call_id, call.call_index,
    min(coalesce(declared.policy_vocab_size, declared.vocab_size)) AS vocab_size, min(declared.named_size) AS named_size
FROM declared
RIGHT JOIN (
    SELECT
        run_id, rollout_id, call_id, call_index, encoding_id, coalesce(policy_id, 'policy') AS policy_id,
        id_range(prompt_token_ids, coalesce(parent_prefix_len, 0)) AS prompt_range, id_range(output_token_ids, 0) AS output_range
    FROM calls
) AS call
    ON call.run_id = declared.run_id AND call.policy_id = declared.policy_id
    AND call.encoding_id IS NOT DISTINCT FROM declared.encoding_id
WHERE least(call.prompt_range['lowest'], call.output_range['lowest']) < 0
    OR greatest(call.prompt_range['highest'], call.output_range['highest'])
        >= least(coalesce(declared.policy_vocab_size, declared.vocab_size), declared.named_size)
GROUP BY call.run_id, call.rollout_id, call.call_id, call.call_index
