-- @question Does a packed sequence's first token train only after its own context?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs samples.segments, samples.position_ids, samples.action_mask, samples.logprobs, samples.trainer_logprobs
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples
--   WHERE (segments IS NOT NULL OR (position_ids IS NOT NULL AND action_mask IS NOT NULL)) AND NOT coalesce(is_pad, false) GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say where each sequence of a row begins, or keep position_ids; ', count(*), ' rows do neither') AS remedy
--   FROM samples WHERE segments IS NULL AND position_ids IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.action_mask' AS missing,
--       concat('say which tokens of a row train; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE action_mask IS NULL AND segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
WITH faults AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest(border_faults(segments, position_ids, row_mask(action_mask, mask_convention))) AS fault
    FROM samples
    WHERE (segments IS NOT NULL OR (position_ids IS NOT NULL AND action_mask IS NOT NULL)) AND NOT coalesce(is_pad, false)
),
-- What a kernel carries over a border stands in no column; the logprobs that the trainer computed show it.
sequence AS (
    SELECT
        run_id, step, group_id, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest(sequence_drifts(segments, row_mask(action_mask, mask_convention), logprobs, trainer_logprobs)) AS drift
    FROM samples
    WHERE segments IS NOT NULL AND logprobs IS NOT NULL AND trainer_logprobs IS NOT NULL AND NOT coalesce(is_pad, false)
),
-- In every row the first sequence agrees with the sampler, and in none do those behind it.
carried AS (
    SELECT run_id, build_id, step, max(drift['apart']) FILTER (WHERE drift['place'] = 0) AS first_apart
    FROM sequence
    GROUP BY run_id, build_id, step
    HAVING count(*) FILTER (WHERE drift['place'] = 0) > 0 AND count(*) FILTER (WHERE drift['place'] > 0) >= 2
        AND max(drift['apart']) FILTER (WHERE drift['place'] = 0) < 0.02
        AND min(drift['apart']) FILTER (WHERE drift['place'] > 0) > 0.1
)
SELECT
    run_id, step, group_id, coalesce(fault['rollout_id'], rollout_id) AS rollout_id, fault['call_id'] AS call_id, build_id,
    epoch, micro_batch, rank, row_index,
    fault['position'] AS position,
    'row' AS position_in,
    fault['length'] AS length,
    fault['expected'] AS expected,
    fault['observed'] AS observed,
    fault['message'] AS message
FROM faults
UNION ALL
SELECT
    sequence.run_id, sequence.step, sequence.group_id, coalesce(sequence.drift['rollout_id'], sequence.rollout_id), sequence.drift['call_id'],
    sequence.build_id, sequence.epoch, sequence.micro_batch, sequence.rank, sequence.row_index, sequence.drift['position'], 'row', sequence.drift['length'],
    concat('logprobs within ', round(carried.first_apart, 6), ' of the sampler''s, as in first sequences'),
    CAST(round(sequence.drift['apart'], 6) AS VARCHAR),
    concat('the trainer''s logprobs of the sequence from row token ', sequence.drift['position'], ' on lie ',
        round(sequence.drift['apart'], 6), ' off the sampler''s, as in every sequence behind another and in no first one: state is carried',
        ' over the border')
FROM sequence
JOIN carried
    ON carried.run_id = sequence.run_id AND carried.build_id IS NOT DISTINCT FROM sequence.build_id
    AND carried.step IS NOT DISTINCT FROM sequence.step
WHERE sequence.drift['place'] > 0
