-- What a build trains of a rollout, span by span, and what it leaves out. $build, $run and $rollout stand for ids.
SELECT
    'trained' AS part, span.epoch, coalesce(span.optimizer_step, span.step) AS optimizer_step, span.micro_batch, span.rank, span.row_index,
    span.row_start, span.call_id, span.start AS position, span.length, weight.weight AS row_weight, CAST(NULL AS VARCHAR) AS reason
FROM trained_span AS span
LEFT JOIN (
    SELECT epoch, optimizer_step, micro_batch, rank, row_index, sum(weight) AS weight
    FROM row_weights
    WHERE run_id = $run AND build_id = $build AND rollout_id = $rollout
    GROUP BY epoch, optimizer_step, micro_batch, rank, row_index
) AS weight
    ON weight.epoch = coalesce(span.epoch, 0) AND weight.optimizer_step IS NOT DISTINCT FROM coalesce(span.optimizer_step, span.step)
    AND weight.micro_batch = coalesce(span.micro_batch, 0) AND weight.rank = coalesce(span.rank, 0)
    AND weight.row_index IS NOT DISTINCT FROM span.row_index
WHERE span.run_id = $run AND span.build_id = $build AND span.rollout_id = $rollout
UNION ALL
SELECT
    'excluded', NULL, NULL, NULL, NULL, NULL, NULL, call_id, position, length, NULL, reason
FROM exclusions
WHERE run_id = $run AND build_id = $build AND rollout_id = $rollout
UNION ALL
SELECT
    'unaccounted', NULL, NULL, NULL, NULL, NULL, NULL, call_id, position, length, NULL, message
FROM audit('token/coverage')
WHERE run_id = $run AND build_id = $build AND rollout_id = $rollout AND outcome = 'violation' AND observed = 'neither'
ORDER BY part DESC, epoch, optimizer_step, micro_batch, rank, row_index, row_start, call_id, position
