-- @question Does every logprob of a row belong to the token it stands beside?
-- @layer sample
-- @severity error
-- @version 2
-- @outcome violation
-- @scope build
-- @needs samples.logprobs, samples.segments, samples.trainer_logprobs, samples.reference_logprobs,
--   calls.output_logprobs, token_signals.values
-- @examined
--   SELECT run_id, count(*) AS examined FROM samples
--   WHERE logprobs IS NOT NULL AND segments IS NOT NULL AND NOT coalesce(is_pad, false) GROUP BY run_id
--   UNION ALL
--   SELECT run_id, count(*) AS examined FROM token_signals WHERE name = 'trainer_logprob' AND "values" IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.logprobs' AS missing,
--       concat('keep the rollout logprobs in the rows; ', count(*), ' rows have none') AS remedy
--   FROM samples WHERE logprobs IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT span.run_id, span.build_id, 'calls.output_logprobs' AS missing,
--       concat('ask the engine for the sampled tokens'' logprobs; ', count(DISTINCT span.call_id), ' trained calls have none') AS remedy
--   FROM trained_span AS span
--   JOIN (SELECT DISTINCT run_id, call_id FROM calls WHERE output_logprobs IS NULL) AS call
--     ON call.run_id = span.run_id AND call.call_id = span.call_id
--   GROUP BY span.run_id, span.build_id
WITH moved_row AS (
    SELECT DISTINCT run_id, build_id, step, epoch, micro_batch, rank, row_index FROM row_output_faults WHERE kind = 'moved'
),
trainer AS (
    SELECT
        run_id, step, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest(logprob_lag(logprobs, trainer_logprobs, row_mask(action_mask, mask_convention))) AS lag
    FROM samples
    WHERE logprobs IS NOT NULL AND trainer_logprobs IS NOT NULL AND NOT coalesce(is_pad, false)
),
-- A reference is another model: only where it is far nearer when moved does it stand at other tokens.
reference AS (
    SELECT
        run_id, step, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest(logprob_lag(coalesce(trainer_logprobs, logprobs), reference_logprobs, row_mask(action_mask, mask_convention))) AS lag
    FROM samples
    WHERE coalesce(trainer_logprobs, logprobs) IS NOT NULL AND reference_logprobs IS NOT NULL AND NOT coalesce(is_pad, false)
),
signal AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id,
        unnest(logprob_lag(call.output_logprobs, signal."values", call.sampled_mask)) AS lag
    FROM (
        SELECT run_id, rollout_id, call_id, "values" FROM token_signals WHERE name = 'trainer_logprob' AND "values" IS NOT NULL
    ) AS signal
    JOIN (
        SELECT run_id, step, group_id, rollout_id, call_id, output_logprobs, sampled_mask FROM calls WHERE output_logprobs IS NOT NULL
    ) AS call
        ON call.run_id = signal.run_id AND call.call_id = signal.call_id
        AND (signal.rollout_id IS NULL OR call.rollout_id = signal.rollout_id)
)
SELECT
    fault.run_id, fault.step,
    CAST(NULL AS VARCHAR) AS group_id,
    fault.rollout_id, fault.call_id, fault.build_id, fault.epoch, fault.micro_batch, fault.rank, fault.row_index,
    fault.position,
    'row' AS position_in,
    fault.length, fault.expected, fault.observed,
    CASE
        WHEN fault.kind = 'moved' THEN
            concat('the logprobs of ', fault.call_id, ' are moved by one token, from row token ', fault.position, ' on: the call gave ',
                fault.expected, ', the row has ', fault.observed)
        ELSE
            concat(fault.length, ' tokens from row token ', fault.position, ' on have the logprob ', fault.observed, ' where ',
                fault.call_id, ' gave ', fault.expected)
    END AS message
FROM (SELECT * FROM row_output_faults WHERE kind IN ('moved', 'logprob')) AS fault
-- Values that all differ where the call's are raw and the temperature is not 1 are of another kind: token/logprob_kind.
LEFT ANTI JOIN (
    SELECT DISTINCT run_id, call_id, true AS is_other_kind FROM calls WHERE logprobs_mode = 'raw' AND temperature <> 1
) AS other
    ON other.run_id = fault.run_id AND other.call_id = fault.call_id
    AND other.is_other_kind = (fault.is_whole AND fault.kind = 'logprob')
UNION ALL
SELECT
    trainer.run_id, trainer.step, NULL, trainer.rollout_id, NULL, trainer.build_id,
    trainer.epoch, trainer.micro_batch, trainer.rank, trainer.row_index,
    trainer.lag['position'], 'row',
    NULL, 'the trainer''s logprob of the same token',
    concat('that of the token ', CASE WHEN trainer.lag['lag'] > 0 THEN 'after' ELSE 'before' END),
    concat('trainer_logprobs are moved by one token: over ', trainer.lag['tokens'], ' trained tokens they differ from logprobs by ',
        round(trainer.lag['apart'], 6), ' as they stand, and by ', round(trainer.lag['moved'], 6), ' moved')
FROM trainer
LEFT ANTI JOIN moved_row
    ON moved_row.run_id = trainer.run_id AND moved_row.build_id IS NOT DISTINCT FROM trainer.build_id
    AND moved_row.row_index IS NOT DISTINCT FROM trainer.row_index AND moved_row.step IS NOT DISTINCT FROM trainer.step
    AND moved_row.epoch IS NOT DISTINCT FROM trainer.epoch AND moved_row.rank IS NOT DISTINCT FROM trainer.rank
    AND moved_row.micro_batch IS NOT DISTINCT FROM trainer.micro_batch
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, lag['position'], 'output', NULL,
    'the trainer''s logprob of the same token',
    concat('that of the token ', CASE WHEN lag['lag'] > 0 THEN 'after' ELSE 'before' END),
    concat('the signal trainer_logprob is moved by one token: over ', lag['tokens'], ' tokens it differs from output_logprobs by ',
        round(lag['apart'], 6), ' as it stands, and by ', round(lag['moved'], 6), ' moved')
FROM signal
UNION ALL
SELECT
    reference.run_id, reference.step, NULL, reference.rollout_id, NULL, reference.build_id,
    reference.epoch, reference.micro_batch, reference.rank, reference.row_index, reference.lag['position'],
    'row', NULL, 'the reference''s logprob of the same token',
    concat('that of the token ', CASE WHEN reference.lag['lag'] > 0 THEN 'after' ELSE 'before' END),
    concat('reference_logprobs are moved by one token: over ', reference.lag['tokens'], ' trained tokens they differ by ',
        round(reference.lag['apart'], 6), ' as they stand, and by ', round(reference.lag['moved'], 6), ' moved')
FROM reference
LEFT ANTI JOIN (SELECT DISTINCT run_id, build_id, step, epoch, micro_batch, rank, row_index FROM trainer) AS told
    ON told.run_id = reference.run_id AND told.build_id IS NOT DISTINCT FROM reference.build_id
    AND told.row_index IS NOT DISTINCT FROM reference.row_index AND told.step IS NOT DISTINCT FROM reference.step
    AND told.epoch IS NOT DISTINCT FROM reference.epoch AND told.rank IS NOT DISTINCT FROM reference.rank
    AND told.micro_batch IS NOT DISTINCT FROM reference.micro_batch
LEFT ANTI JOIN moved_row
    ON moved_row.run_id = reference.run_id AND moved_row.build_id IS NOT DISTINCT FROM reference.build_id
    AND moved_row.row_index IS NOT DISTINCT FROM reference.row_index AND moved_row.step IS NOT DISTINCT FROM reference.step
    AND moved_row.epoch IS NOT DISTINCT FROM reference.epoch AND moved_row.rank IS NOT DISTINCT FROM reference.rank
    AND moved_row.micro_batch IS NOT DISTINCT FROM reference.micro_batch
