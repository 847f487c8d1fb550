-- @question Is every row the only one with its key, and every rollout sampled rather than copied?
-- @layer policy
-- @severity error
-- @version 3
-- @outcome violation
-- @needs calls.output_token_ids, calls.output_logprobs, calls.seed, calls.response_id,
--   rollouts.output_digest, environment_records.content_digest
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_token_ids' AS missing,
--       concat('ask the engine to return token ids; ', count(*), ' calls have none, and copies of them are not found') AS remedy
--   FROM calls WHERE output_len IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_logprobs' AS missing,
--       concat('ask the engine for logprobs; ', count(*), ' calls have none, and copies of them are not told from equal answers') AS remedy
--   FROM calls WHERE output_len > 0 AND output_logprobs IS NULL GROUP BY run_id
WITH doubled AS (
    SELECT 'calls' AS source, call.run_id, min(call.rollout_id) AS rollout_id, call.call_id,
        CAST(NULL AS VARCHAR) AS build_id, CAST(NULL AS VARCHAR) AS derivation_id, CAST(NULL AS INTEGER) AS row_index,
        call.call_id AS doubled_key, count(*) AS copies
    FROM doubled_call AS twice
    JOIN calls AS call ON call.run_id = twice.run_id AND call.call_id = twice.call_id
    GROUP BY call.run_id, call.call_id
    UNION ALL
    SELECT 'scores', run_id, min(rollout_id), min(call_id), NULL, NULL, NULL, score_id, count(*)
    FROM scores_history WHERE score_id IS NOT NULL GROUP BY run_id, score_id HAVING count(*) > 1
    UNION ALL
    SELECT 'environment_records', record.run_id, min(record.rollout_id), min(record.call_id), NULL, NULL, NULL, record.record_id, count(*)
    FROM (
        SELECT run_id, record_id FROM environment_records WHERE record_id IS NOT NULL GROUP BY run_id, record_id HAVING count(*) > 1
    ) AS twice
    JOIN environment_records AS record ON record.run_id = twice.run_id AND record.record_id = twice.record_id
    GROUP BY record.run_id, record.record_id
    UNION ALL
    SELECT 'token_signals', run_id, min(rollout_id), call_id, NULL, NULL, NULL, concat(call_id, ', ', name), count(*)
    FROM token_signals WHERE call_id IS NOT NULL AND name IS NOT NULL
    GROUP BY run_id, call_id, name, producer, policy_version HAVING count(*) > 1
    UNION ALL
    SELECT 'rewards', run_id, rollout_id, call_id, NULL, derivation_id, NULL, concat_ws(', ', rollout_id, call_id), count(*)
    FROM rewards_history WHERE derivation_id IS NOT NULL
    GROUP BY run_id, derivation_id, rollout_id, call_id HAVING count(*) > 1
    UNION ALL
    SELECT 'credits', run_id, rollout_id, call_id, NULL, derivation_id, NULL, concat_ws(', ', rollout_id, call_id), count(*)
    FROM credits_history WHERE derivation_id IS NOT NULL
    GROUP BY run_id, derivation_id, rollout_id, call_id HAVING count(*) > 1
    UNION ALL
    -- A dump that does not number its rows has no keys to double.
    SELECT 'samples', run_id, min(rollout_id), NULL, build_id, NULL, row_index,
        concat_ws(', ', concat('step ', coalesce(optimizer_step, step)), 'micro-batch ' || CAST(micro_batch AS VARCHAR),
            'rank ' || CAST(rank AS VARCHAR), concat('row ', row_index)), count(*)
    FROM samples WHERE build_id IS NOT NULL AND row_index IS NOT NULL
    GROUP BY run_id, build_id, epoch, step, optimizer_step, micro_batch, rank, row_index HAVING count(*) > 1
),
sampled AS (
    -- At temperature 0 equal outputs are what one expects.
    SELECT
        run_id, step, group_id, rollout_id, call_id, prompt_digest, output_digest, output_len, seed, response_id,
        coalesce(choice_index, 0) AS choice_index
    FROM calls
    WHERE output_len > 0 AND output_digest IS NOT NULL AND rollout_id IS NOT NULL AND coalesce(temperature, 1) > 0
),
suspect AS (
    SELECT call.run_id, call.output_digest
    FROM equal_output AS twice
    JOIN sampled AS call ON call.output_digest = twice.output_digest
    GROUP BY call.run_id, call.output_digest
    HAVING count(DISTINCT call.rollout_id) > 1
),
-- Logprobs are read of calls with equal outputs only.
equal AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, call.prompt_digest, call.output_digest,
        call.seed, call.response_id, coalesce(call.choice_index, 0) AS choice_index,
        logprob_digest(call.output_logprobs) AS logprobs, logprob_sum(call.output_logprobs) AS logprob
    FROM calls AS call
    JOIN suspect ON suspect.run_id = call.run_id AND suspect.output_digest = call.output_digest
    WHERE call.output_len > 0 AND call.rollout_id IS NOT NULL AND coalesce(call.temperature, 1) > 0
        AND call.output_logprobs IS NOT NULL
),
-- A fork shares what came before it with its origin: they are one family.
family AS (
    SELECT run_id, rollout_id, min(coalesce(origin_rollout_id, rollout_id)) AS family
    FROM rollouts GROUP BY run_id, rollout_id
),
related AS (
    SELECT equal.*, coalesce(family.family, equal.rollout_id) AS family
    FROM equal
    LEFT JOIN family ON family.run_id = equal.run_id AND family.rollout_id = equal.rollout_id
),
ways AS (
    SELECT
        *,
        unnest([
            named_struct(
                'reason', concat('seed ', seed),
                'way', CASE WHEN seed IS NOT NULL THEN concat_ws('/', 'seed', CAST(seed AS VARCHAR), CAST(choice_index AS VARCHAR), prompt_digest) END
            ),
            named_struct(
                'reason', concat('response_id ', response_id),
                'way', CASE WHEN response_id IS NOT NULL THEN concat_ws('/', 'response', response_id, CAST(choice_index AS VARCHAR)) END
            ),
            named_struct(
                'reason', concat('the summed logprob ', round(logprob, 2)),
                'way', CASE WHEN logprob < -20 THEN 'unlikely' END
            )
        ]) AS way
    FROM related
),
placed AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, way['reason'] AS reason, family,
        first_value(rollout_id) OVER same AS first_rollout,
        first_value(call_id) OVER same AS first_call,
        first_value(family) OVER same AS first_family
    FROM ways
    WHERE way['way'] IS NOT NULL
    WINDOW same AS (PARTITION BY run_id, output_digest, logprobs, way['way'] ORDER BY rollout_id, call_id ROWS UNBOUNDED PRECEDING)
),
-- One finding for a rollout and the one it repeats, at the first call of it.
copied AS (
    SELECT
        run_id, min(step) AS step, min(group_id) AS group_id, rollout_id, first_rollout, min(call_id) AS call_id,
        count(DISTINCT call_id) AS calls, min(first_call) AS first_call, min(reason) AS reason
    FROM placed
    WHERE family <> first_family
    GROUP BY run_id, rollout_id, first_rollout
),
-- Nearly equal outputs: they share a stretch of tokens that the policy itself gave a chance below exp(-40) where it stands.
-- A few hashes stand for an output, so that copies meet in a group and nothing is compared with everything.
stretched AS (
    SELECT candidate.*
    FROM (SELECT hash FROM unlikely_stretch GROUP BY hash HAVING count(*) > 1) AS twice
    JOIN unlikely_stretch AS candidate ON candidate.hash = twice.hash
),
shared AS (
    SELECT run_id, hash, min(rollout_id) AS first_rollout
    FROM stretched
    GROUP BY run_id, hash
    HAVING min(rollout_id) < max(rollout_id)
),
fork AS (
    SELECT run_id, rollout_id, family FROM family WHERE family <> rollout_id
),
met AS (
    SELECT stretched.*, shared.first_rollout
    FROM shared
    JOIN stretched ON stretched.run_id = shared.run_id AND stretched.hash = shared.hash
    LEFT JOIN fork AS own ON own.run_id = stretched.run_id AND own.rollout_id = stretched.rollout_id
    LEFT JOIN fork AS other ON other.run_id = shared.run_id AND other.rollout_id = shared.first_rollout
    WHERE coalesce(own.family, stretched.rollout_id) <> coalesce(other.family, shared.first_rollout)
),
-- One finding for a rollout, at the first place that another has too.
nearly AS (
    SELECT
        run_id, min(step) AS step, min(group_id) AS group_id, rollout_id, count(DISTINCT first_rollout) AS others,
        first_value(call_id ORDER BY call_index, call_id, position, length, hash) AS call_id,
        first_value(position ORDER BY call_index, call_id, position, length, hash) AS position,
        first_value(length ORDER BY call_index, call_id, position, length, hash) AS length,
        first_value(hash ORDER BY call_index, call_id, position, length, hash) AS hash,
        first_value(first_rollout ORDER BY call_index, call_id, position, length, hash) AS first_rollout
    FROM met
    GROUP BY run_id, rollout_id
),
near_copy AS (
    SELECT
        nearly.run_id, nearly.step, nearly.group_id, nearly.rollout_id, nearly.others, nearly.call_id, nearly.position,
        nearly.length, nearly.first_rollout, min(origin.call_id) AS first_call
    FROM nearly
    LEFT ANTI JOIN copied ON copied.run_id = nearly.run_id AND copied.rollout_id = nearly.rollout_id
    JOIN unlikely_stretch AS origin
        ON origin.run_id = nearly.run_id AND origin.hash = nearly.hash AND origin.rollout_id = nearly.first_rollout
    GROUP BY
        nearly.run_id, nearly.step, nearly.group_id, nearly.rollout_id, nearly.others, nearly.call_id, nearly.position,
        nearly.length, nearly.first_rollout
),
-- Where no tokens are known, the source's own digest of a long output, or one response of the engine in two rollouts.
digested AS (
    SELECT
        run_id, rollout_id, min(step) AS step, min(group_id) AS group_id, min(output_digest) AS output_digest,
        min(coalesce(origin_rollout_id, rollout_id)) AS family
    FROM rollouts
    WHERE output_digest IS NOT NULL AND output_token_count >= 256
    GROUP BY run_id, rollout_id
),
same_digest AS (
    SELECT *
    FROM (
        SELECT
            *,
            first_value(rollout_id) OVER same AS first_rollout,
            first_value(family) OVER same AS first_family
        FROM digested
        WINDOW same AS (PARTITION BY run_id, output_digest ORDER BY rollout_id ROWS UNBOUNDED PRECEDING)
    )
    WHERE family <> first_family
),
-- Responses of the engine that several calls are. All that follows is asked of these calls.
answered_twice AS (
    SELECT run_id, response_id FROM calls WHERE response_id IS NOT NULL GROUP BY run_id, response_id HAVING count(*) > 1
),
-- One response of the engine that stands in a rollout as several calls, as a request does that was sent again.
repeated AS (
    SELECT *
    FROM (
        SELECT
            run_id, step, group_id, rollout_id, call_id, response_id,
            first_value(call_id) OVER (
                PARTITION BY run_id, rollout_id, response_id, choice_index, prompt_digest, output_digest ORDER BY call_index, call_id
                ROWS UNBOUNDED PRECEDING
            ) AS first_call
        FROM (
            SELECT
                call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, call.call_index, call.response_id,
                coalesce(call.choice_index, 0) AS choice_index, call.prompt_digest, call.output_digest
            FROM answered_twice AS twice
            JOIN calls AS call ON call.run_id = twice.run_id AND call.response_id = twice.response_id
            WHERE call.output_digest IS NOT NULL AND call.prompt_digest IS NOT NULL AND call.rollout_id IS NOT NULL
                AND call.output_len > 0
        )
    )
    WHERE call_id <> first_call
),
answered AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, call.response_id,
        coalesce(call.output_digest, concat('text/', call.output_text)) AS output, coalesce(call.choice_index, 0) AS choice_index,
        coalesce(family.family, call.rollout_id) AS family
    FROM answered_twice AS twice
    JOIN calls AS call ON call.run_id = twice.run_id AND call.response_id = twice.response_id
    LEFT JOIN family ON family.run_id = call.run_id AND family.rollout_id = call.rollout_id
    WHERE call.rollout_id IS NOT NULL AND call.output_logprobs IS NULL
),
same_response AS (
    SELECT *
    FROM (
        SELECT
            *,
            first_value(rollout_id) OVER same AS first_rollout,
            first_value(call_id) OVER same AS first_call,
            first_value(family) OVER same AS first_family
        FROM answered
        WHERE output IS NOT NULL
        WINDOW same AS (PARTITION BY run_id, response_id, choice_index, output ORDER BY rollout_id, call_id ROWS UNBOUNDED PRECEDING)
    )
    WHERE family <> first_family
)
SELECT
    run_id,
    CAST(NULL AS BIGINT) AS step,
    CAST(NULL AS VARCHAR) AS group_id,
    rollout_id, call_id, build_id, derivation_id, row_index,
    CAST(NULL AS INTEGER) AS position,
    CAST(NULL AS VARCHAR) AS position_in,
    CAST(NULL AS INTEGER) AS length,
    'one row' AS expected,
    concat(copies, ' rows') AS observed,
    concat(source, ' has ', copies, ' rows with the key ', doubled_key) AS message
FROM doubled
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, NULL,
    'an output of its own',
    concat('the output and logprobs of ', first_call, ' in ', first_rollout),
    concat(calls, ' calls of ', rollout_id, ', ', call_id, ' first, have the output and the logprobs of calls in ', first_rollout,
        '; ', reason, ' says that this is no chance')
FROM copied
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, position, 'output', length,
    'an output of its own',
    concat('much of ', first_call, ' in ', first_rollout),
    concat('call ', call_id, ' of ', rollout_id, ' has ', length, ' tokens from ', position, ' on that call ', first_call, ' of ',
        first_rollout, ' has too, and the policy gave them a chance below exp(-40): one was made of the other',
        CASE WHEN others > 1 THEN concat('; it shares such with ', others, ' rollouts') END)
FROM near_copy
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    'an output of its own',
    concat('the output digest of ', first_rollout),
    concat('rollout ', rollout_id, ' has the output digest of ', first_rollout, ', over hundreds of tokens')
FROM same_digest
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, NULL,
    'a response of its own',
    concat('response ', response_id),
    concat('call ', call_id, ' of ', rollout_id, ' is response ', response_id, ' of the engine, as is call ', first_call, ' of ',
        first_rollout)
FROM same_response
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, NULL, NULL, NULL, NULL, NULL, NULL,
    'a response of its own',
    concat('response ', response_id),
    concat('call ', call_id, ' of ', rollout_id, ' is response ', response_id, ' of the engine, as its call ', first_call, ' is')
FROM repeated
