-- @question Does every output end as its finish reason says, within its limits?
-- @layer policy
-- @severity error
-- @version 2
-- @outcome violation
-- @needs calls.finish_reason, calls.output_token_ids, calls.stop_token, calls.tokens_trimmed, calls.usage_output_tokens,
--   calls.max_tokens, calls.continues_call_id, runs.eos_token_ids, runs.max_output_tokens, runs.max_context_tokens
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls WHERE output_len IS NOT NULL AND finish_reason IS NOT NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.finish_reason' AS missing,
--       concat('keep why the engine stopped; ', count(*), ' calls do not say') AS remedy
--   FROM calls WHERE finish_reason IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.output_token_ids' AS missing,
--       concat('ask the engine to return token ids; ', count(*), ' calls have none') AS remedy
--   FROM calls WHERE output_len IS NULL GROUP BY run_id
-- @undeclared
--   SELECT call.run_id, 'runs.eos_token_ids' AS missing, 'declare the ids that end an output' AS remedy
--   FROM (SELECT DISTINCT run_id FROM calls WHERE output_len IS NOT NULL AND finish_reason = 'stop') AS call
--   LEFT ANTI JOIN (SELECT run_id FROM runs WHERE cardinality(eos_token_ids) > 0) AS run ON run.run_id = call.run_id
-- @undeclared
--   SELECT run_id, 'calls.stop_token' AS missing,
--       concat('record the token or string that ended an output; ', count(*) FILTER (WHERE NOT is_ended),
--           ' outputs stopped at no end id, and nothing tells whether one was cut off') AS remedy
--   FROM call_end
--   WHERE is_stop AND stop_token IS NULL AND stop_string IS NULL AND cardinality(eos_token_ids) > 0
--     AND coalesce(tokens_trimmed, 0) = 0 AND coalesce(output_len < max_tokens, true)
--     AND coalesce(usage_output_tokens, output_len) = output_len
--   GROUP BY run_id
--   HAVING count(*) FILTER (WHERE NOT is_ended) > 0
--     AND (count(*) FILTER (WHERE is_ended) < 4 OR 5 * count(*) FILTER (WHERE is_ended) < 4 * count(*))
-- @undeclared
--   SELECT run_id, 'runs.max_context_tokens' AS missing,
--       concat('declare the longest context; ', count(*), ' outputs are shorter than max_tokens and stopped for their length') AS remedy
--   FROM call_end
--   WHERE is_length AND NOT is_ended AND max_context_tokens IS NULL
--     AND greatest(output_len + coalesce(tokens_trimmed, 0), coalesce(usage_output_tokens, 0)) < max_tokens
--   GROUP BY run_id

-- Runs whose stopped outputs keep their end id, but for a fifth at most: there, one without it has lost it.
WITH RECURSIVE keeping AS (
    SELECT run_id
    FROM call_end
    WHERE is_stop AND stop_string IS NULL AND cardinality(eos_token_ids) > 0
    GROUP BY run_id
    HAVING count(*) FILTER (WHERE is_ended) >= 4 AND 5 * count(*) FILTER (WHERE is_ended) >= 4 * count(*)
),
ended AS (
    SELECT
        call_end.*,
        coalesce(tokens_trimmed, 0) AS trimmed,
        greatest(output_len + coalesce(tokens_trimmed, 0), coalesce(usage_output_tokens, 0)) AS sampled,
        keeping.run_id IS NOT NULL AS is_keeping,
        lost.token AS next_token, lost.next_call_id
    FROM call_end
    LEFT JOIN keeping ON keeping.run_id = call_end.run_id
    LEFT JOIN (SELECT run_id, call_id, min(token) AS token, min(next_call_id) AS next_call_id FROM lost_end GROUP BY run_id, call_id) AS lost
        ON lost.run_id = call_end.run_id AND lost.call_id = call_end.call_id
),
judged AS (
    SELECT
        *,
        CASE
            WHEN is_stop AND trimmed = 0 AND stop_token IS NOT NULL AND last_token IS DISTINCT FROM stop_token THEN 'stop_token'
            WHEN is_stop AND trimmed = 0 AND stop_token IS NULL AND stop_string IS NULL AND NOT is_ended AND cardinality(eos_token_ids) > 0
                THEN CASE
                    WHEN usage_output_tokens > output_len THEN 'cut'
                    WHEN output_len >= max_tokens THEN 'truncated'
                    WHEN next_token IS NOT NULL THEN 'closed'
                    WHEN is_keeping THEN 'lost'
                END
            -- One that stopped went on past it by a rule of its own, such as a least number of tokens.
            WHEN is_length AND first_end < output_len AND NOT ignores_end THEN 'inside'
            WHEN is_length AND is_ended AND sampled < max_tokens THEN 'complete'
            WHEN is_length AND sampled < max_tokens AND prompt_len + sampled < max_context_tokens - 1 THEN 'short'
        END AS fault
    FROM ended
),
-- A resumed call shares one budget with the calls it resumes.
resumed AS (
    SELECT run_id, call_id, continues_call_id AS at, CAST(0 AS BIGINT) AS before, 1 AS distance
    FROM calls WHERE continues_call_id IS NOT NULL
    UNION ALL
    SELECT resumed.run_id, resumed.call_id, earlier.continues_call_id, resumed.before + earlier.output_len, resumed.distance + 1
    FROM resumed
    JOIN (SELECT run_id, call_id, continues_call_id, output_len FROM calls WHERE output_len IS NOT NULL) AS earlier
        ON earlier.run_id = resumed.run_id AND earlier.call_id = resumed.at
    WHERE resumed.distance < 500
),
first_call AS (
    SELECT
        resumed.run_id, resumed.call_id, resumed.before + origin.output_len AS before,
        -- The limit of an aborted call was what it had left; a call that ran to its limit may have had a part of the budget.
        CASE WHEN lower(coalesce(origin.finish_reason, '')) NOT IN ('length', 'max_tokens', 'max_output_tokens') THEN origin.max_tokens END
            AS given
    FROM resumed
    JOIN (
        SELECT run_id, call_id, output_len, max_tokens, finish_reason FROM calls
        WHERE continues_call_id IS NULL AND output_len IS NOT NULL
    ) AS origin ON origin.run_id = resumed.run_id AND origin.call_id = resumed.at
),
allowed AS (
    SELECT run_id, max(max_output_tokens) AS max_output_tokens, max(max_context_tokens) AS max_context_tokens
    FROM runs GROUP BY run_id
),
budget AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id, call.prompt_len, call.output_len,
        coalesce(origin.before, 0) AS before, origin.given, allowed.max_output_tokens AS declared, allowed.max_context_tokens
    FROM (
        SELECT run_id, step, group_id, rollout_id, call_id, prompt_len, output_len FROM calls WHERE output_len IS NOT NULL
    ) AS call
    LEFT JOIN allowed ON allowed.run_id = call.run_id
    LEFT JOIN first_call AS origin ON origin.run_id = call.run_id AND origin.call_id = call.call_id
    WHERE origin.given IS NOT NULL OR allowed.max_output_tokens IS NOT NULL OR allowed.max_context_tokens IS NOT NULL
),
over AS (
    SELECT
        *,
        CASE WHEN before + output_len > given THEN 'violation' ELSE 'rule' END AS outcome,
        CASE WHEN before + output_len > given THEN given ELSE declared END AS allowed
    FROM budget
    WHERE before + output_len > given OR before + output_len > declared
)
SELECT
    CASE WHEN fault IN ('closed', 'lost', 'short') THEN 'rule' ELSE 'violation' END AS outcome,
    run_id, step, group_id, rollout_id, call_id,
    CASE WHEN fault = 'inside' THEN first_end - 1 WHEN output_len > 0 THEN output_len - 1 ELSE 0 END AS position,
    'output' AS position_in,
    CAST(NULL AS INTEGER) AS length,
    CASE
        WHEN fault = 'stop_token' THEN concat('the stop token ', stop_token)
        WHEN fault IN ('cut', 'closed', 'lost') THEN 'one of eos_token_ids'
        WHEN fault = 'inside' THEN concat('an end at ', output_len - 1, ' or none')
        WHEN fault = 'truncated' THEN 'finish reason length'
        WHEN fault = 'complete' THEN 'finish reason stop'
        ELSE concat(max_tokens, ' tokens')
    END AS expected,
    CASE
        WHEN fault IN ('stop_token', 'cut', 'closed', 'lost') THEN coalesce(CAST(last_token AS VARCHAR), 'no token')
        WHEN fault = 'short' THEN concat(sampled, ' tokens')
        WHEN fault = 'inside' THEN concat('an end at ', first_end - 1)
        ELSE concat('finish reason ', finish_reason)
    END AS observed,
    CASE fault
        WHEN 'stop_token' THEN
            concat('the output of ', call_id, ' ended at stop token ', stop_token, ', but its last token is ', coalesce(CAST(last_token AS VARCHAR), 'none'))
        WHEN 'cut' THEN
            concat('the output of ', call_id, ' finished with ', finish_reason, ', its last token ends nothing, and the engine billed ',
                usage_output_tokens, ' tokens for ', output_len, ': the end was cut off')
        WHEN 'closed' THEN
            concat('the output of ', call_id, ' finished with ', finish_reason, ' and lacks its end, which the prompt of ', next_call_id,
                ' has right behind it: ', next_token)
        WHEN 'lost' THEN
            concat('the output of ', call_id, ' finished with ', finish_reason, ', but its last token ends nothing, unlike nearly all of the run')
        WHEN 'inside' THEN
            concat('the output of ', call_id, ' has an end at token ', first_end - 1, ' and goes on to ', output_len, ' tokens')
        WHEN 'truncated' THEN
            concat('the output of ', call_id, ' has all ', max_tokens, ' tokens it was allowed and no end, but finished with ', finish_reason)
        WHEN 'complete' THEN
            concat('the output of ', call_id, ' finished with ', finish_reason, ', but ends with ', last_token, ' after ', sampled,
                ' of ', max_tokens, ' tokens')
        ELSE
            concat('the output of ', call_id, ' finished with ', finish_reason, ' after ', sampled, ' of ', max_tokens,
                ' tokens, in a context of ', prompt_len + sampled, ' of ', max_context_tokens)
    END AS message
FROM judged
WHERE fault IS NOT NULL
UNION ALL
SELECT
    outcome, run_id, step, group_id, rollout_id, call_id,
    CAST(greatest(allowed - before, 0) AS INTEGER), 'output',
    CAST(output_len - greatest(allowed - before, 0) AS INTEGER),
    concat('at most ', allowed, ' tokens'), concat(before + output_len, ' tokens'),
    CASE
        WHEN before > 0 THEN
            concat(call_id, ' and the calls it resumes sampled ', before + output_len, ' tokens of a budget of ', allowed)
        ELSE concat(call_id, ' sampled ', output_len, ' tokens where the run allows ', allowed)
    END
FROM over
UNION ALL
SELECT
    'rule', run_id, step, group_id, rollout_id, call_id,
    greatest(max_context_tokens - prompt_len, 0), 'output', CAST(NULL AS INTEGER),
    concat('a context of at most ', max_context_tokens, ' tokens'), concat(prompt_len + output_len, ' tokens'),
    concat('prompt and output of ', call_id, ' have ', prompt_len + output_len, ' tokens where the run allows ', max_context_tokens)
FROM budget
WHERE prompt_len + output_len > max_context_tokens
