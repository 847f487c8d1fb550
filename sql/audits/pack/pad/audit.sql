-- @question Does padding train nothing, and is what only fills a batch marked as padding?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.is_pad, samples.action_mask, samples.loss_weights, samples.segments
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.action_mask' AS missing,
--       concat('say which tokens of the padding rows train; ', count(*), ' rows do not') AS remedy
--   FROM samples
--   WHERE is_pad AND action_mask IS NULL AND loss_weights IS NULL AND segments IS NULL GROUP BY run_id, build_id
WITH padding AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        -- Of all segments together, so that a row without any is looked at as well.
        span_weights(
            coalesce(
                segments,
                [named_struct('start', 0, 'length', coalesce(cardinality(action_mask), cardinality(loss_weights), 0), 'sequence_index', 0,
                    'rollout_id', CAST(NULL AS VARCHAR), 'call_id', CAST(NULL AS VARCHAR), 'source', 'pad',
                    'source_start', 0, 'trained', false)]
            ),
            action_mask, loss_weights
        ) AS shares
    FROM samples
    WHERE is_pad
),
weighed AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        sum(share['tokens']) AS tokens, sum(abs(share['weight'])) AS weight
    FROM (SELECT run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index, unnest(shares) AS share FROM padding)
    GROUP BY run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index
),
-- Rows that hold nothing but padding, by their own segments.
unmarked AS (
    SELECT run_id, step, build_id, epoch, micro_batch, rank, row_index
    FROM row_segment
    WHERE NOT is_pad AND length > 0 AND row_index IS NOT NULL
    GROUP BY run_id, step, build_id, epoch, optimizer_step, micro_batch, rank, row_index
    HAVING bool_and(coalesce(source, '') = 'pad')
)
SELECT
    run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
    '0 trained tokens' AS expected,
    concat(tokens, ' trained tokens') AS observed,
    CASE
        WHEN tokens > 0 THEN concat('padding row ', coalesce(CAST(row_index AS VARCHAR), '?'), ' trains ', tokens,
            ' tokens: they fill the denominator, whatever their advantage')
        ELSE concat('padding row ', coalesce(CAST(row_index AS VARCHAR), '?'), ' trains nothing and has the loss weight ', weight)
    END AS message
FROM weighed
WHERE tokens > 0 OR weight <> 0
UNION ALL
SELECT
    run_id, step, NULL, NULL, build_id, epoch, micro_batch, rank, row_index, 'is_pad', 'not marked',
    concat('row ', row_index, ' holds nothing but padding and is not marked is_pad: it counts as a row')
FROM unmarked
