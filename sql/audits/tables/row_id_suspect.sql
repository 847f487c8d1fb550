-- Trainer rows with an id outside of the smallest model that they go to, by the range of their ids.
WITH sampler AS (
    SELECT DISTINCT run_id, encoding_id, coalesce(policy_id, 'policy') AS policy_id FROM calls
),
-- Rows go to the policy and to every model that samples nothing, such as a reference with a smaller table. Of several policies each
-- trains its own rows.
smallest AS (
    SELECT run_id, min(vocab_size) AS vocab_size
    FROM (
        SELECT run_id, vocab_size FROM runs WHERE vocab_size IS NOT NULL
        UNION ALL
        SELECT policy.run_id, policy.vocab_size
        FROM policy_vocab AS policy
        LEFT JOIN (SELECT run_id, count(DISTINCT policy_id) AS policies FROM sampler GROUP BY run_id) AS several
            ON several.run_id = policy.run_id
        LEFT JOIN (SELECT DISTINCT run_id, policy_id FROM sampler) AS used
            ON used.run_id = policy.run_id AND used.policy_id = policy.policy_id
        WHERE used.policy_id IS NULL OR several.policies = 1
    )
    GROUP BY run_id
)
SELECT
    row.run_id, row.step, row.build_id, row.epoch, row.optimizer_step, row.micro_batch, row.rank, row.row_index,
    min(smallest.vocab_size) AS vocab_size
FROM smallest
RIGHT JOIN (
    SELECT
        run_id, step, build_id, epoch, optimizer_step, micro_batch, rank, row_index, id_range(token_ids, 0) AS range
    FROM samples
    WHERE token_ids IS NOT NULL AND NOT coalesce(is_pad, false)
) AS row ON row.run_id = smallest.run_id
WHERE row.range['lowest'] < 0 OR row.range['highest'] >= smallest.vocab_size
GROUP BY row.run_id, row.step, row.build_id, row.epoch, row.optimizer_step, row.micro_batch, row.rank, row.row_index
