-- @question Was every token sampled by a version of the policy that its run allows for it?
-- @layer policy
-- @severity error
-- @version 3
-- @outcome violation
-- @scope build
-- @needs calls.policy_version, calls.policy_spans, calls.cache_epoch, samples.trained_policy_version, policies.step,
--   runs.max_staleness, runs.allow_policy_mix
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls
--   WHERE policy_version IS NOT NULL OR policy_spans IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.policy_version' AS missing,
--       concat('let the engine say which weights sampled each output; of ', count(*), ' calls it is not known') AS remedy
--   FROM calls
--   WHERE policy_version IS NULL AND coalesce(cardinality(policy_spans), 0) = 0 AND coalesce(output_len, 0) > 0
--       AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
--   GROUP BY run_id
-- @undeclared
--   SELECT mixed.run_id, 'runs.allow_policy_mix' AS missing,
--       concat('say whether one rollout may hold tokens of several policy versions; ', count(*), ' rollouts do') AS remedy
--   FROM (
--       SELECT run_id, rollout_id
--       FROM (
--           SELECT run_id, rollout_id, policy_id, policy_version FROM calls
--           WHERE coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
--           UNION ALL
--           SELECT run_id, rollout_id, policy_id, span['policy_version']
--           FROM (
--               SELECT run_id, rollout_id, policy_id, unnest(policy_spans) AS span FROM calls
--               WHERE coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
--           )
--       )
--       WHERE policy_version >= 0
--       GROUP BY run_id, rollout_id, policy_id HAVING min(policy_version) < max(policy_version)
--   ) AS mixed
--   JOIN (SELECT run_id FROM runs GROUP BY run_id HAVING count(allow_policy_mix) = 0) AS rule ON rule.run_id = mixed.run_id
--   GROUP BY mixed.run_id
-- @undeclared
--   SELECT row.run_id, row.build_id, 'samples.trained_policy_version' AS missing,
--       concat('say which version each row updated, or give policies the step that published them; of ', count(*),
--           ' trained rows it is not known') AS remedy
--   FROM (SELECT run_id, build_id, step FROM samples
--       WHERE trained_policy_version IS NULL AND NOT coalesce(is_pad, false) AND segments IS NOT NULL) AS row
--   LEFT JOIN (SELECT DISTINCT run_id, step FROM policies WHERE step IS NOT NULL) AS published
--     ON published.run_id = row.run_id AND published.step = row.step
--   WHERE published.run_id IS NULL
--   GROUP BY row.run_id, row.build_id
-- @undeclared
--   SELECT row.run_id, 'runs.max_staleness' AS missing,
--       concat('say how many versions may lie between sampling a token and training it; ', count(*), ' rows say what they trained')
--           AS remedy
--   FROM (SELECT run_id FROM samples WHERE trained_policy_version IS NOT NULL) AS row
--   JOIN (SELECT run_id FROM runs GROUP BY run_id HAVING count(max_staleness) = 0) AS rule ON rule.run_id = row.run_id
--   GROUP BY row.run_id
WITH rule AS (
    SELECT run_id, max(max_staleness) AS max_staleness, bool_and(allow_policy_mix) AS allow_policy_mix
    FROM runs
    GROUP BY run_id
),
act AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, call_index, coalesce(policy_id, 'policy') AS policy_id,
        policy_version, output_len, cache_epoch, coalesce(cardinality(policy_spans), 0) > 0 AS has_spans
    FROM calls
    WHERE coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
),
-- Only what the policy sampled has a version; what an engine writes over prompt and tool tokens has none.
span AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, call_index, coalesce(policy_id, 'policy') AS policy_id,
        stretch['policy_version'] AS policy_version, stretch['start'] AS start, stretch['length'] AS length, finished_at
    FROM (
        SELECT
            run_id, step, group_id, rollout_id, call_id, call_index, policy_id, finished_at,
            unnest(version_spans(policy_version, policy_spans, sampled_mask, output_len)) AS stretch
        FROM calls
        WHERE coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
    )
),
mixed AS (
    SELECT run_id, rollout_id, policy_id, min(policy_version) AS lowest, max(policy_version) AS highest
    FROM span
    WHERE policy_version >= 0
    GROUP BY run_id, rollout_id, policy_id
),
-- Rollouts of several versions where their run allows one.
forbidden AS (
    SELECT mixed.*
    FROM mixed
    JOIN rule ON rule.run_id = mixed.run_id
    WHERE NOT rule.allow_policy_mix AND mixed.lowest < mixed.highest
),
counted AS (
    SELECT
        forbidden.run_id, forbidden.rollout_id, forbidden.policy_id, forbidden.lowest, forbidden.highest,
        count(DISTINCT span.policy_version) AS versions
    FROM forbidden
    JOIN span
        ON span.run_id = forbidden.run_id AND span.rollout_id IS NOT DISTINCT FROM forbidden.rollout_id
        AND span.policy_id = forbidden.policy_id
    WHERE span.policy_version >= 0
    GROUP BY forbidden.run_id, forbidden.rollout_id, forbidden.policy_id, forbidden.lowest, forbidden.highest
),
-- The first token of another version than the rollout began with.
turned AS (
    SELECT *
    FROM (
        SELECT
            *,
            row_number() OVER (PARTITION BY run_id, rollout_id, policy_id ORDER BY call_index, call_id, start) AS place
        FROM (
            SELECT
                span.*,
                first_value(span.policy_version) OVER (
                    PARTITION BY span.run_id, span.rollout_id, span.policy_id ORDER BY span.call_index, span.call_id, span.start
                    ROWS UNBOUNDED PRECEDING
                ) AS first_version
            FROM forbidden
            JOIN span
                ON span.run_id = forbidden.run_id AND span.rollout_id IS NOT DISTINCT FROM forbidden.rollout_id
                AND span.policy_id = forbidden.policy_id
        )
        WHERE policy_version <> first_version
    )
    WHERE place = 1
),
known AS (
    SELECT
        run_id, rollout_id, count(DISTINCT policy_id) AS policies,
        count(*) FILTER (WHERE policy_version IS NULL AND NOT has_spans AND coalesce(output_len, 0) > 0) AS unknown
    FROM act
    GROUP BY run_id, rollout_id
),
published AS (
    SELECT
        run_id, coalesce(policy_id, 'policy') AS policy_id, max(policy_version) AS newest
    FROM policies
    WHERE policy_version IS NOT NULL
    GROUP BY run_id, coalesce(policy_id, 'policy')
),
published_at AS (
    SELECT run_id, coalesce(policy_id, 'policy') AS policy_id, policy_version, min(published_at) AS published_at
    FROM policies
    WHERE policy_version IS NOT NULL AND published_at IS NOT NULL
    GROUP BY run_id, coalesce(policy_id, 'policy'), policy_version
),
at_step AS (
    SELECT
        run_id, coalesce(policy_id, 'policy') AS policy_id, step, min(policy_version) AS lowest, max(policy_version) AS highest
    FROM policies
    WHERE step IS NOT NULL AND policy_version IS NOT NULL
    GROUP BY run_id, coalesce(policy_id, 'policy'), step
),
use AS (
    SELECT
        trained.run_id, trained.build_id, trained.step, trained.epoch, trained.micro_batch, trained.rank, trained.row_index, trained.rollout_id, trained.call_id,
        trained.start, trained.length, row.trained_policy_version
    FROM trained_span AS trained
    LEFT JOIN (
        SELECT
            run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index,
            max(trained_policy_version) AS trained_policy_version
        FROM samples
        WHERE trained_policy_version IS NOT NULL
        GROUP BY run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index
    ) AS row
        ON row.run_id = trained.run_id
        AND row.build_id IS NOT DISTINCT FROM trained.build_id
        AND row.step IS NOT DISTINCT FROM trained.step
        AND row.epoch IS NOT DISTINCT FROM trained.epoch
        AND row.optimizer_step IS NOT DISTINCT FROM trained.optimizer_step
        AND row.micro_batch IS NOT DISTINCT FROM trained.micro_batch
        AND row.rank IS NOT DISTINCT FROM trained.rank
        AND row.row_index IS NOT DISTINCT FROM trained.row_index
),
own AS (
    SELECT span.run_id AS call_run, span.*
    FROM span
    LEFT ANTI JOIN doubled_call AS doubled ON doubled.run_id = span.run_id AND doubled.call_id = span.call_id
),
-- A row may train what another run sampled; that is a fault of its own, and the version is that of the call.
foreign_call AS (
    SELECT use.run_id, use.call_id, min(other.run_id) AS call_run
    FROM (
        SELECT DISTINCT use.run_id, use.call_id
        FROM use
        LEFT ANTI JOIN calls AS here ON here.run_id = use.run_id AND here.call_id = use.call_id
    ) AS use
    JOIN calls AS other ON other.call_id = use.call_id
    GROUP BY use.run_id, use.call_id
    HAVING count(*) = 1
),
resolved AS (
    SELECT run_id AS use_run, * FROM own
    UNION ALL
    SELECT foreign_call.run_id, own.*
    FROM foreign_call
    JOIN own ON own.run_id = foreign_call.call_run AND own.call_id = foreign_call.call_id
),
trained AS (
    SELECT
        use.run_id, use.build_id, use.step, use.epoch, use.micro_batch, use.rank, use.row_index, coalesce(use.rollout_id, span.rollout_id) AS rollout_id,
        use.call_id, span.policy_version,
        greatest(use.start, span.start) AS start,
        least(use.start + use.length, span.start + coalesce(span.length, use.start + use.length)) AS stop,
        coalesce(use.trained_policy_version, at_step.lowest) AS trained_low,
        coalesce(use.trained_policy_version, at_step.highest) AS trained_high
    FROM use
    JOIN resolved AS span ON span.use_run = use.run_id AND span.call_id = use.call_id
    LEFT JOIN at_step
        ON at_step.run_id = use.run_id AND at_step.policy_id = span.policy_id AND at_step.step = use.step
    WHERE use.start < span.start + coalesce(span.length, 2147483647 - span.start) AND span.start < use.start + use.length
),
-- One finding for each stretch of a call, at the first row that trains it so, however many passes do.
stale AS (
    SELECT
        trained.run_id, build_id,
        first_value(named_struct('step', step, 'epoch', epoch, 'micro_batch', micro_batch, 'rank', rank, 'row_index', row_index)
            ORDER BY step, epoch, rank, micro_batch, row_index) AS place,
        rollout_id, call_id, policy_version, start, stop, max_staleness,
        max(trained_low - policy_version) AS lag, max(trained_low) AS trained_by
    FROM trained
    JOIN rule ON rule.run_id = trained.run_id
    WHERE policy_version >= 0 AND trained_low - policy_version > rule.max_staleness
    GROUP BY trained.run_id, build_id, rollout_id, call_id, policy_version, start, stop, max_staleness
),
older AS (
    SELECT
        run_id, build_id,
        first_value(named_struct('step', step, 'epoch', epoch, 'micro_batch', micro_batch, 'rank', rank, 'row_index', row_index)
            ORDER BY step, epoch, rank, micro_batch, row_index) AS place,
        rollout_id, call_id, policy_version, start, stop,
        min(trained_high - policy_version) AS lag, min(trained_high) AS trained_first
    FROM trained
    WHERE policy_version >= 0 AND trained_high < policy_version
    GROUP BY run_id, build_id, rollout_id, call_id, policy_version, start, stop
)
SELECT
    'rule' AS outcome, turned.run_id, turned.step, turned.group_id, turned.rollout_id, turned.call_id,
    CAST(NULL AS VARCHAR) AS build_id,
    CAST(NULL AS INTEGER) AS epoch, CAST(NULL AS INTEGER) AS micro_batch, CAST(NULL AS INTEGER) AS rank,
    CAST(NULL AS INTEGER) AS row_index,
    turned.start AS position,
    'output' AS position_in,
    turned.length AS length,
    'one policy version' AS expected,
    concat(counted.versions, ' versions') AS observed,
    concat('rollout ', turned.rollout_id, ' was sampled by ', counted.versions, ' versions, ', counted.lowest, ' to ', counted.highest,
        ', where the run allows no mix; call ', turned.call_id, ' first leaves version ', turned.first_version, ' for ',
        turned.policy_version) AS message
FROM turned
JOIN counted
    ON counted.run_id = turned.run_id AND counted.rollout_id IS NOT DISTINCT FROM turned.rollout_id
    AND counted.policy_id = turned.policy_id
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, start, 'output', length, 'a version from 0 on',
    CAST(policy_version AS VARCHAR),
    concat('call ', call_id, ' says that version ', policy_version, ' sampled its output from ', start,
        ' on: a mark for tokens without a version stands on sampled ones')
FROM span
WHERE policy_version < 0
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, 0, 'output', CAST(NULL AS INTEGER),
    CAST(policy_version AS VARCHAR), CAST(span['policy_version'] AS VARCHAR),
    concat('call ', call_id, ' says that version ', policy_version, ' sampled its first token, and its spans say ',
        span['policy_version'])
FROM (
    SELECT run_id, step, group_id, rollout_id, call_id, policy_version, unnest(policy_spans) AS span
    FROM calls
    WHERE cardinality(policy_spans) > 0 AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
)
WHERE span['start'] = 0 AND span['policy_version'] <> policy_version
UNION ALL
SELECT
    'violation', rollout.run_id, rollout.step, rollout.group_id, rollout.rollout_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    concat(mixed.lowest, ' to ', mixed.highest),
    concat(rollout.policy_version_min, ' to ', rollout.policy_version_max),
    concat('rollout ', rollout.rollout_id, ' says that versions ', coalesce(CAST(rollout.policy_version_min AS VARCHAR), '?'), ' to ',
        coalesce(CAST(rollout.policy_version_max AS VARCHAR), '?'), ' sampled it, and its calls say ', mixed.lowest, ' to ',
        mixed.highest)
FROM rollouts AS rollout
JOIN mixed ON mixed.run_id = rollout.run_id AND mixed.rollout_id = rollout.rollout_id
JOIN known ON known.run_id = rollout.run_id AND known.rollout_id = rollout.rollout_id
WHERE known.policies = 1 AND known.unknown = 0 AND coalesce(rollout.status, '') <> 'running'
    AND (rollout.policy_version_min <> mixed.lowest OR rollout.policy_version_max <> mixed.highest)
UNION ALL
SELECT
    'violation', span.run_id, span.step, span.group_id, span.rollout_id, span.call_id, NULL, NULL, NULL, NULL, NULL, span.start, 'output',
    span.length, concat('at most ', published.newest), CAST(span.policy_version AS VARCHAR),
    concat('call ', span.call_id, ' was sampled by version ', span.policy_version, ' of ', span.policy_id,
        ', and the newest that the run published is ', published.newest)
FROM span
JOIN published ON published.run_id = span.run_id AND published.policy_id = span.policy_id
WHERE span.policy_version > published.newest
UNION ALL
SELECT
    'violation', span.run_id, span.step, span.group_id, span.rollout_id, span.call_id, NULL, NULL, NULL, NULL, NULL, span.start, 'output',
    span.length, concat('after ', published_at.published_at), CAST(span.finished_at AS VARCHAR),
    concat('call ', span.call_id, ' was complete before version ', span.policy_version, ', which it names, was published')
FROM span
JOIN published_at
    ON published_at.run_id = span.run_id AND published_at.policy_id = span.policy_id
    AND published_at.policy_version = span.policy_version
WHERE span.finished_at < published_at.published_at
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    concat('at most ', policy_version), CAST(cache_epoch AS VARCHAR),
    concat('the prefix cache of call ', call_id, ' was filled by version ', cache_epoch, ', which is newer than version ',
        policy_version, ' that sampled from it')
FROM act
WHERE cache_epoch > policy_version AND NOT has_spans
UNION ALL
SELECT
    'rule', act.run_id, act.step, act.group_id, act.rollout_id, act.call_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    CAST(act.policy_version AS VARCHAR), CAST(act.cache_epoch AS VARCHAR),
    concat('call ', act.call_id, ' was sampled by version ', act.policy_version, ' from a prefix cache of version ', act.cache_epoch,
        CASE
            WHEN NOT rule.allow_policy_mix THEN ', where the run allows no mix'
            ELSE concat(', where the run allows a distance of ', rule.max_staleness)
        END)
FROM act
JOIN rule ON rule.run_id = act.run_id
WHERE act.cache_epoch < act.policy_version
    AND (NOT rule.allow_policy_mix OR act.policy_version - act.cache_epoch > rule.max_staleness)
UNION ALL
SELECT
    'rule', run_id, place['step'], NULL, rollout_id, call_id, build_id, place['epoch'], place['micro_batch'], place['rank'],
    place['row_index'], start, 'output', stop - start, concat('a lag of at most ', max_staleness), CAST(lag AS VARCHAR),
    concat('tokens ', start, ' to ', stop - 1, ' of call ', call_id, ', sampled by version ', policy_version,
        ', train version ', trained_by, ': a lag of ', lag, ' where the run allows ', max_staleness)
FROM stale
UNION ALL
SELECT
    'violation', run_id, place['step'], NULL, rollout_id, call_id, build_id, place['epoch'], place['micro_batch'], place['rank'],
    place['row_index'], start, 'output', stop - start,
    'a lag of at least 0', CAST(lag AS VARCHAR),
    concat('tokens ', start, ' to ', stop - 1, ' of call ', call_id, ', sampled by version ', policy_version,
        ', train the older version ', trained_first)
FROM older
