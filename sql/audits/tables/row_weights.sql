-- What each rollout of each trainer row trains and weighs.
WITH narrow AS (
    SELECT
        run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index, rollout_id,
        span_weights(segments, row_mask(action_mask, mask_convention), loss_weights) AS shares
    FROM samples
    WHERE segments IS NOT NULL AND NOT coalesce(is_pad, false)
    UNION ALL
    -- A row without segments is one rollout's, or nobody's.
    SELECT
        run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index, rollout_id,
        span_weights(
            [named_struct('start', 0, 'length', coalesce(cardinality(action_mask), cardinality(loss_weights)), 'trained', true)],
            row_mask(action_mask, mask_convention), loss_weights
        )
    FROM samples
    WHERE segments IS NULL AND NOT coalesce(is_pad, false)
        AND (action_mask IS NOT NULL OR loss_weights IS NOT NULL)
),
row_share AS (
    SELECT
        run_id, build_id, step, coalesce(epoch, 0) AS epoch, coalesce(optimizer_step, step) AS optimizer_step,
        coalesce(micro_batch, 0) AS micro_batch, coalesce(rank, 0) AS rank, row_index, rollout_id, shares,
        row_number() OVER (
            PARTITION BY run_id, build_id ORDER BY epoch, optimizer_step, step, micro_batch, rank, row_index, rollout_id
        ) AS row_number
    FROM narrow
),
in_row AS (
    SELECT
        run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_number, row_index,
        coalesce(share['rollout_id'], rollout_id) AS rollout_id, share['tokens'] AS tokens, share['weight'] AS weight
    FROM (
        SELECT
            run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_number, row_index, rollout_id,
            unnest(shares) AS share
        FROM row_share
    )
)
SELECT
    run_id, build_id, min(step) AS step, epoch, optimizer_step, micro_batch, rank, row_number,
    min(row_index) AS row_index, rollout_id,
    sum(tokens) AS tokens, sum(weight) AS weight, count(*) = count(weight) AS is_weighted,
    -- A NaN is above every number.
    coalesce(abs(sum(weight)) < 1e300, true) AS is_finite
FROM in_row
GROUP BY run_id, build_id, epoch, optimizer_step, micro_batch, rank, row_number, rollout_id
