-- @question Does everything that a run holds come from that run, and from one course of it?
-- @layer policy
-- @severity error
-- @version 2
-- @outcome violation
-- @scope lake
-- @needs samples.run_id, builds.run_id, calls.response_id, calls.output_digest, policies.weights_digest, policies.base_model,
--   policies.step
-- @examined
--   SELECT run_id, count(*) AS examined FROM rollouts GROUP BY run_id
-- @undeclared
--   SELECT called.run_id, 'policies.weights_digest' AS missing,
--       'say what each version''s weights are: a resumed run may use a version''s number for other weights' AS remedy
--   FROM (SELECT DISTINCT run_id FROM calls WHERE policy_version IS NOT NULL) AS called
--   LEFT JOIN (SELECT DISTINCT run_id FROM policies WHERE weights_digest IS NOT NULL) AS known ON known.run_id = called.run_id
--   WHERE known.run_id IS NULL
WITH known AS (
    SELECT DISTINCT run_id, rollout_id FROM rollouts
),
named AS (
    SELECT 'samples' AS source, run_id, build_id, CAST(NULL AS VARCHAR) AS derivation_id, rollout_id FROM samples
    UNION ALL SELECT 'samples.segments', run_id, build_id, NULL, rollout_id FROM row_segment
    UNION ALL SELECT 'calls', run_id, NULL, NULL, rollout_id FROM calls
    UNION ALL SELECT 'scores', run_id, NULL, NULL, rollout_id FROM scores_history
    UNION ALL SELECT 'environment_records', run_id, NULL, NULL, rollout_id FROM environment_records
    UNION ALL SELECT 'rewards', run_id, NULL, derivation_id, rollout_id FROM rewards_history
    UNION ALL SELECT 'credits', run_id, NULL, derivation_id, rollout_id FROM credits_history
    UNION ALL SELECT 'exclusions', run_id, build_id, NULL, rollout_id FROM exclusions
),
strayed AS (
    SELECT name.source, name.run_id, name.build_id, name.derivation_id, name.rollout_id, name.mentions, min(other.run_id) AS other
    FROM (
        SELECT named.source, named.run_id, named.build_id, named.derivation_id, named.rollout_id, count(*) AS mentions
        FROM known AS own
        RIGHT ANTI JOIN named ON own.run_id = named.run_id AND own.rollout_id = named.rollout_id
        WHERE named.rollout_id IS NOT NULL
        GROUP BY named.source, named.run_id, named.build_id, named.derivation_id, named.rollout_id
    ) AS name
    JOIN known AS other ON other.rollout_id = name.rollout_id
    GROUP BY name.source, name.run_id, name.build_id, name.derivation_id, name.rollout_id, name.mentions
    -- An id that several runs have tells of none of them.
    HAVING count(DISTINCT other.run_id) = 1
),
-- The same output in two runs: the engine's id of the response says so, or that chance cannot give it.
shared AS (
    SELECT call.output_digest
    FROM equal_output AS twice
    JOIN calls AS call ON call.output_digest = twice.output_digest
    WHERE call.output_len > 0 AND call.rollout_id IS NOT NULL AND coalesce(call.temperature, 1) > 0
    GROUP BY call.output_digest HAVING count(DISTINCT call.run_id) > 1
),
twin AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, call.call_index, call.output_digest,
        call.response_id, logprob_digest(call.output_logprobs) AS logprobs, logprob_sum(call.output_logprobs) AS logprob
    FROM calls AS call
    JOIN shared ON shared.output_digest = call.output_digest
    WHERE call.output_len > 0 AND call.rollout_id IS NOT NULL AND coalesce(call.temperature, 1) > 0
),
way AS (
    SELECT *, concat('response/', response_id) AS way FROM twin WHERE response_id IS NOT NULL
    UNION ALL
    SELECT *, concat('logprobs/', logprobs) FROM twin WHERE logprob < -20
),
first_run AS (
    SELECT run_id, min(started_at) AS started_at, min(created_at) AS created_at FROM rollouts GROUP BY run_id
),
placed AS (
    SELECT
        way.*,
        first_value(way.run_id) OVER same AS origin_run,
        first_value(way.rollout_id) OVER same AS origin_rollout
    FROM way
    LEFT JOIN first_run ON first_run.run_id = way.run_id
    WINDOW same AS (
        PARTITION BY way.output_digest, way.way ORDER BY first_run.started_at, first_run.created_at, way.run_id, way.rollout_id
        ROWS UNBOUNDED PRECEDING
    )
),
copied AS (
    SELECT
        run_id, min(step) AS step, min(group_id) AS group_id, rollout_id,
        first_value(call_id ORDER BY call_index, call_id) AS call_id, count(DISTINCT call_id) AS calls, origin_run, origin_rollout
    FROM placed
    WHERE run_id <> origin_run
    GROUP BY run_id, rollout_id, origin_run, origin_rollout
),
base AS (
    SELECT run_id, coalesce(policy_id, 'policy') AS policy_id, min(base_model) AS one, max(base_model) AS other
    FROM policies
    WHERE base_model IS NOT NULL
    GROUP BY run_id, coalesce(policy_id, 'policy') HAVING count(DISTINCT base_model) > 1
),
weights AS (
    SELECT
        run_id, coalesce(policy_id, 'policy') AS policy_id, policy_version, min(weights_digest) AS one, max(weights_digest) AS other
    FROM policies_history
    WHERE weights_digest IS NOT NULL AND policy_version IS NOT NULL
    GROUP BY run_id, coalesce(policy_id, 'policy'), policy_version HAVING count(DISTINCT weights_digest) > 1
),
course AS (
    SELECT
        run_id, policy_id, policy_version, step,
        max(step) OVER (
            PARTITION BY run_id, policy_id ORDER BY policy_version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
    FROM (
        SELECT run_id, coalesce(policy_id, 'policy') AS policy_id, policy_version, min(step) AS step
        FROM policies
        WHERE policy_version IS NOT NULL AND step IS NOT NULL
        GROUP BY run_id, coalesce(policy_id, 'policy'), policy_version
    )
),
retrained AS (
    SELECT
        run_id, build_id, step, optimizer_step, epoch, min(trained_policy_version) AS one, max(trained_policy_version) AS other,
        count(DISTINCT trained_policy_version) AS versions
    FROM samples
    WHERE trained_policy_version IS NOT NULL AND optimizer_step IS NOT NULL
    GROUP BY run_id, build_id, step, optimizer_step, epoch HAVING count(DISTINCT trained_policy_version) > 1
),
-- Policies that train side by side have versions of their own.
several AS (
    SELECT run_id, count(DISTINCT coalesce(policy_id, 'policy')) AS policies
    FROM calls WHERE coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
    GROUP BY run_id HAVING count(DISTINCT coalesce(policy_id, 'policy')) > 1
),
-- No step trains what a later one dispatched. A source that counts steps otherwise does so in all rows of a build.
dispatched AS (
    SELECT
        trained.run_id, trained.build_id, trained.rollout_id, trained.step, trained.row_index, rollout.step AS dispatched_step, rollout.group_id,
        max(trained.step - rollout.step) OVER (PARTITION BY trained.run_id, trained.build_id) AS longest,
        min(trained.step) OVER (PARTITION BY trained.run_id, trained.build_id) AS first_step,
        max(trained.step) OVER (PARTITION BY trained.run_id, trained.build_id) AS last_step
    FROM (
        SELECT run_id, build_id, rollout_id, min(step) AS step, min(row_index) AS row_index FROM row_weights
        WHERE tokens > 0 AND rollout_id IS NOT NULL AND step IS NOT NULL GROUP BY run_id, build_id, rollout_id
    ) AS trained
    JOIN (
        SELECT run_id, rollout_id, min(step) AS step, min(group_id) AS group_id FROM rollouts
        WHERE step IS NOT NULL GROUP BY run_id, rollout_id
    ) AS rollout ON rollout.run_id = trained.run_id AND rollout.rollout_id = trained.rollout_id
),
-- Later optimizer steps train later versions.
trained AS (
    SELECT
        run_id, build_id, step, optimizer_step, version,
        max(version) OVER (
            PARTITION BY run_id, build_id ORDER BY optimizer_step, step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
    FROM (
        SELECT run_id, build_id, min(step) AS step, coalesce(optimizer_step, step) AS optimizer_step, max(trained_policy_version) AS version
        FROM samples
        WHERE trained_policy_version IS NOT NULL AND coalesce(optimizer_step, step) IS NOT NULL
        GROUP BY run_id, build_id, coalesce(optimizer_step, step)
    )
),
-- A trained call is one policy's: under one version and adapter no request names two models.
model AS (
    SELECT
        run_id, coalesce(policy_id, 'policy') AS policy_id, policy_version, min(model) AS one, max(model) AS other
    FROM calls
    WHERE model IS NOT NULL AND policy_version IS NOT NULL
        AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
    GROUP BY run_id, coalesce(policy_id, 'policy'), policy_version, lora_adapter, agent_id, role
    HAVING count(DISTINCT model) > 1
)
SELECT
    row.run_id,
    row.step,
    CAST(NULL AS VARCHAR) AS group_id,
    CAST(NULL AS VARCHAR) AS rollout_id,
    CAST(NULL AS VARCHAR) AS call_id,
    row.build_id,
    CAST(NULL AS VARCHAR) AS derivation_id,
    row.row_index,
    concat('run ', build.run_id) AS expected,
    concat('run ', row.run_id) AS observed,
    concat(row.rows, ' rows of run ', row.run_id, ' stand in build ', row.build_id, ', which trains run ', build.run_id) AS message
FROM (
    SELECT run_id, build_id, min(step) AS step, min(row_index) AS row_index, count(*) AS rows
    FROM samples GROUP BY run_id, build_id
) AS row
JOIN (SELECT build_id, min(run_id) AS run_id FROM builds GROUP BY build_id HAVING count(DISTINCT run_id) = 1) AS build
    ON build.build_id = row.build_id
WHERE build.run_id <> row.run_id
UNION ALL
SELECT
    run_id, NULL, NULL, rollout_id, NULL, build_id, derivation_id, NULL, concat('run ', run_id), concat('run ', other),
    concat(mentions, ' rows of ', source, ' of run ', run_id, ' name rollout ', rollout_id, ', which run ', other, ' sampled')
FROM strayed
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, 'outputs of this run',
    concat('those of ', origin_rollout, ' in run ', origin_run),
    concat(calls, ' calls of rollout ', rollout_id, ', ', call_id, ' first, were sampled in run ', origin_run, ' as rollout ',
        origin_rollout)
FROM copied
UNION ALL
SELECT
    run_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'one base model', concat(one, ', ', other),
    concat('versions of ', policy_id, ' start from several base models, such as ', one, ' and ', other)
FROM base
UNION ALL
SELECT
    run_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, one, other,
    concat('version ', policy_version, ' of ', policy_id, ' was published with weights ', one, ' and with ', other,
        ': a resumed run has used the number again')
FROM weights
UNION ALL
SELECT
    run_id, step, NULL, NULL, NULL, NULL, NULL, NULL, concat('step ', reached, ' or later'), concat('step ', step),
    concat('version ', policy_version, ' of ', policy_id, ' was published by step ', step, ', and an earlier version by step ',
        reached, ': the run was resumed and its steps repeated')
FROM course
WHERE step < reached
UNION ALL
SELECT
    run_id, step, NULL, NULL, NULL, build_id, NULL, NULL, concat('version ', one), concat('versions ', one, ' to ', other),
    concat('optimizer step ', optimizer_step, ' of build ', build_id, ' trains version ', one, ' and version ', other,
        ': the step was taken twice')
FROM retrained
LEFT ANTI JOIN several ON several.run_id = retrained.run_id AND retrained.versions <= several.policies
UNION ALL
SELECT
    run_id, step, NULL, NULL, NULL, build_id, NULL, NULL, concat('version ', reached, ' or later'), concat('version ', version),
    concat('optimizer step ', optimizer_step, ' of build ', build_id, ' trains version ', version, ', and an earlier step has trained version ',
        reached, ': the run went back to an older checkpoint')
FROM trained
LEFT ANTI JOIN several ON several.run_id = trained.run_id
WHERE version < reached
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, NULL, build_id, NULL, row_index, concat('step ', dispatched_step, ' or later'), concat('step ', step),
    concat('step ', step, ' of build ', build_id, ' trains rollout ', rollout_id, ', which step ', dispatched_step,
        ' dispatched: it is of another course of the run')
FROM dispatched
WHERE step < dispatched_step AND longest >= 0 AND first_step < last_step
UNION ALL
SELECT
    run_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'one model', concat(one, ', ', other),
    concat('requests to version ', policy_version, ' of ', policy_id, ' name several models, such as ', one, ' and ', other)
FROM model
