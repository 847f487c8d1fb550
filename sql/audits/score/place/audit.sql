-- @question Does every value that is given token by token stand on a token that can receive it?
-- @layer credit
-- @severity error
-- @version 1
-- @outcome violation
-- @needs token_signals.values, credits.token_values, calls.sampled_mask, calls.action_mask, samples.advantages, samples.action_mask
-- @examined
--   SELECT run_id, count(*) AS examined FROM token_signals WHERE name LIKE '%reward%' GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM credits WHERE token_values IS NOT NULL GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM samples WHERE advantages IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.action_mask' AS missing,
--       concat('say which tokens train; ', count(*), ' rows with advantages do not') AS remedy
--   FROM samples
--   WHERE advantages IS NOT NULL AND action_mask IS NULL AND segments IS NULL AND NOT coalesce(is_pad, false)
--   GROUP BY run_id, build_id
WITH call AS (
    SELECT call.run_id, call.call_id, call.sampled_mask, call.action_mask
    FROM calls AS call
    LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = call.run_id AND doubled.call_id = call.call_id
    WHERE call.call_id IS NOT NULL AND (call.sampled_mask IS NOT NULL OR call.action_mask IS NOT NULL)
),
reward AS (
    SELECT run_id, step, group_id, rollout_id, call_id, name, "values" AS given
    FROM token_signals WHERE name LIKE '%reward%' AND "values" IS NOT NULL
),
misplaced AS (
    SELECT
        reward.run_id, reward.step, reward.group_id, reward.rollout_id, reward.call_id, reward.name,
        unnest(misplaced_values(reward.given, call.sampled_mask, call.action_mask)) AS run
    FROM reward
    JOIN call ON call.run_id = reward.run_id AND call.call_id = reward.call_id
),
-- A mask may be changed after the rollout: what counts is the token that the trainer trains.
placed AS (
    SELECT run_id, step, group_id, rollout_id, call_id, name, run['position'] AS position, run['length'] AS length, run['value'] AS value
    FROM (SELECT *, unnest(valued_spans(given)) AS run FROM reward)
),
trained_call AS (
    SELECT run_id, build_id, call_id, array_agg(named_struct('start', start, 'length', length)) AS spans, max(start + length) AS stop
    FROM trained_span GROUP BY run_id, build_id, call_id
),
untrained AS (
    SELECT
        placed.run_id, placed.step, placed.group_id, placed.rollout_id, placed.call_id, placed.name, placed.value,
        trained.build_id, placed.position, placed.length,
        unnest(uncovered_spans(placed.position + placed.length, NULL, trained.spans)) AS gap
    FROM placed
    JOIN trained_call AS trained ON trained.run_id = placed.run_id AND trained.call_id = placed.call_id
    LEFT ANTI JOIN (
        SELECT run_id, call_id, run['position'] AS position FROM misplaced
    ) AS known ON known.run_id = placed.run_id AND known.call_id = placed.call_id AND known.position = placed.position
),
credit AS (
    SELECT
        credit.run_id, credit.step, credit.group_id, credit.rollout_id, credit.call_id, credit.derivation_id, credit.name,
        coalesce(credit.quantity, 'advantage') AS what,
        unnest(misplaced_values(credit.token_values, call.sampled_mask, call.action_mask)) AS run
    FROM credits AS credit
    JOIN call ON call.run_id = credit.run_id AND call.call_id = credit.call_id
    WHERE credit.token_values IS NOT NULL
),
row AS (
    SELECT
        run_id, step, rollout_id, build_id, epoch, micro_batch, rank, row_index,
        unnest(misplaced_values(advantages, CAST(NULL AS BOOLEAN[]), action_mask)) AS run
    FROM samples
    WHERE advantages IS NOT NULL AND action_mask IS NOT NULL AND NOT coalesce(is_pad, false) AND any_true(action_mask)
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    CAST(NULL AS VARCHAR) AS derivation_id,
    CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    run['position'] AS position,
    'output' AS position_in,
    run['length'] AS length,
    'no value' AS expected,
    CAST(run['value'] AS VARCHAR) AS observed,
    concat(name, ' of call ', call_id, ' gives ', run['value'], ' to ', run['length'], ' tokens from ', run['position'],
        ' on, which are not trained: it reaches no token') AS message
FROM misplaced
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, build_id, NULL, NULL, NULL, NULL, NULL, gap['position'], 'output', gap['length'], 'a trained token',
    CAST(value AS VARCHAR),
    concat(name, ' of call ', call_id, ' gives ', value, ' to token ', gap['position'], ', which build ', build_id,
        ' does not train, and it trains others of the call')
FROM untrained
WHERE gap['position'] + gap['length'] > position
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, derivation_id, NULL, NULL, NULL, NULL, run['position'], 'output', run['length'], 'no value',
    CAST(run['value'] AS VARCHAR),
    concat('credit ', name, ' gives ', run['value'], ' to ', run['length'], ' tokens of call ', call_id, ' from ', run['position'],
        ' on, which are not trained',
        CASE WHEN run['is_all'] THEN ', and nothing to those that are' ELSE '' END)
FROM credit
-- A return or an advantage may be carried across tokens that do not train; it is lost where it stands on these alone.
WHERE what = 'weight' OR run['is_all']
UNION ALL
SELECT
    run_id, step, NULL, rollout_id, NULL, build_id, NULL, epoch, micro_batch, rank, row_index, run['position'], 'row', run['length'], 'no value',
    CAST(run['value'] AS VARCHAR),
    concat('row ', coalesce(CAST(row_index AS VARCHAR), '?'), ' of build ', build_id, ' has its only advantages on ', run['length'],
        ' tokens from ', run['position'], ' on, which do not train')
FROM row
WHERE run['is_all']
