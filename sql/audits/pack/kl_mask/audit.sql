-- @question Does the KL term run over the tokens that the policy term runs over?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs builds.reported, builds.kl_estimator, samples.action_mask
-- @examined
--   SELECT run_id, count(*) AS examined FROM reported_count WHERE is_kl GROUP BY run_id
-- @undeclared
--   SELECT sample.run_id, sample.build_id, 'builds.reported' AS missing,
--       'keep how many tokens the trainer counted in its KL term (term kl, loss_tokens)' AS remedy
--   FROM (
--     SELECT run_id, build_id FROM samples WHERE reference_logprobs IS NOT NULL GROUP BY run_id, build_id
--     UNION
--     SELECT run_id, build_id FROM row_build WHERE kl_estimator IS NOT NULL
--   ) AS sample
--   LEFT JOIN (SELECT DISTINCT run_id, build_id FROM reported_count WHERE is_kl) AS reported
--     ON reported.run_id = sample.run_id AND reported.build_id = sample.build_id
--   WHERE reported.build_id IS NULL
WITH part AS (
    SELECT run_id, build_id, min(step) AS step, epoch, optimizer_step, micro_batch, rank, sum(tokens) AS tokens
    FROM row_weights
    GROUP BY run_id, build_id, epoch, optimizer_step, micro_batch, rank
),
-- An epoch trains the same rows again: one of them is what the trainer counted.
counted AS (
    SELECT run_id, build_id, optimizer_step, micro_batch, rank, term, loss_tokens, min(step) AS step, min(tokens) AS least, max(tokens) AS most
    FROM (
        SELECT
            count.build_id, count.optimizer_step, count.micro_batch, count.rank, count.term, count.loss_tokens, part.epoch,
            count.run_id, min(part.step) AS step, sum(part.tokens) AS tokens
        FROM (SELECT * FROM reported_count WHERE is_kl AND loss_tokens IS NOT NULL) AS count
        JOIN part
            ON part.run_id = count.run_id AND part.build_id = count.build_id
            AND (count.optimizer_step IS NULL OR count.optimizer_step = part.optimizer_step)
            AND (count.micro_batch IS NULL OR count.micro_batch = part.micro_batch)
            AND (count.rank IS NULL OR count.rank = part.rank)
        GROUP BY count.run_id, count.build_id, count.optimizer_step, count.micro_batch, count.rank, count.term, count.loss_tokens, part.epoch
    )
    GROUP BY run_id, build_id, optimizer_step, micro_batch, rank, term, loss_tokens
),
compared AS (
    SELECT
        kl.run_id, kl.build_id, row.step, kl.optimizer_step, kl.micro_batch, kl.rank, kl.loss_tokens,
        -- What the trainer says of its policy term, else what the rows train.
        coalesce(policy.loss_tokens, CASE WHEN kl.loss_tokens BETWEEN row.least AND row.most THEN kl.loss_tokens ELSE row.least END) AS expected
    FROM (SELECT * FROM reported_count WHERE is_kl AND loss_tokens IS NOT NULL) AS kl
    LEFT JOIN (
        SELECT run_id, build_id, optimizer_step, micro_batch, rank, max(loss_tokens) AS loss_tokens
        FROM reported_count WHERE is_policy GROUP BY run_id, build_id, optimizer_step, micro_batch, rank
    ) AS policy
        ON policy.run_id = kl.run_id AND policy.build_id = kl.build_id AND policy.optimizer_step IS NOT DISTINCT FROM kl.optimizer_step
        AND policy.micro_batch IS NOT DISTINCT FROM kl.micro_batch AND policy.rank IS NOT DISTINCT FROM kl.rank
    LEFT JOIN counted AS row
        ON row.run_id = kl.run_id AND row.build_id = kl.build_id AND row.optimizer_step IS NOT DISTINCT FROM kl.optimizer_step
        AND row.micro_batch IS NOT DISTINCT FROM kl.micro_batch AND row.rank IS NOT DISTINCT FROM kl.rank
        AND row.term IS NOT DISTINCT FROM kl.term AND row.loss_tokens = kl.loss_tokens
)
SELECT
    run_id, step, build_id,
    CAST(expected AS VARCHAR) AS expected, CAST(loss_tokens AS VARCHAR) AS observed,
    concat('the KL term counts ', loss_tokens, ' tokens where the policy term counts ', expected, ' (',
        concat_ws(', ', concat('optimizer step ', coalesce(CAST(optimizer_step AS VARCHAR), 'of each row')),
            'micro-batch ' || CAST(micro_batch AS VARCHAR), 'rank ' || CAST(rank AS VARCHAR)), ')') AS message
FROM compared
WHERE loss_tokens <> expected
