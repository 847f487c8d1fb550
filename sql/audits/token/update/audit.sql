-- @question Does each request hold the answer of the call before and the results of its tools, in order?
-- @layer environment
-- @severity error
-- @version 1
-- @outcome violation
-- @scope rollout
-- @needs calls.parent_call_id, calls.request, calls.parsed, calls.response, calls.break_reason, environment_records.content
-- @examined
--   SELECT child.run_id, count(*) AS examined
--   FROM calls AS child
--   JOIN calls AS parent
--       ON parent.run_id = child.run_id AND parent.rollout_id = child.rollout_id AND parent.call_id = child.parent_call_id
--   WHERE child.break_reason IS NULL AND child.continues_call_id IS NULL
--       AND coalesce(child.kind, 'act') = 'act' AND coalesce(parent.kind, 'act') = 'act'
--       AND has_messages(child.request) AND has_messages(parent.request)
--   GROUP BY child.run_id
-- @undeclared
--   SELECT run_id, 'calls.parent_call_id' AS missing,
--       concat('name the call that each one continues; ', count(*), ' calls after a rollout''s first name none') AS remedy
--   FROM calls WHERE call_index > 0 AND parent_call_id IS NULL GROUP BY run_id
-- @undeclared
--   SELECT run_id, 'calls.request' AS missing,
--       concat('keep the request with its messages; ', count(*), ' calls that continue another have none') AS remedy
--   FROM calls
--   WHERE parent_call_id IS NOT NULL AND break_reason IS NULL AND NOT coalesce(has_messages(request), false)
--   GROUP BY run_id
-- @undeclared
--   SELECT parent.run_id, 'calls.parsed' AS missing,
--       concat('keep the response, or what the parsers gave; ', count(*), ' calls that another continues have neither') AS remedy
--   FROM calls AS child
--   JOIN calls AS parent
--       ON parent.run_id = child.run_id AND parent.rollout_id = child.rollout_id AND parent.call_id = child.parent_call_id
--   WHERE child.break_reason IS NULL AND has_messages(child.request)
--       AND holds_parsed(parent.parsed, parent.response, parent.choice_index) IS NULL
--   GROUP BY parent.run_id
WITH result AS (
    SELECT
        run_id, rollout_id, call_id,
        in_order(array_agg(named_struct('record_id', record_id, 'tool_call_id', tool_call_id, 'content', content))) AS results
    FROM environment_records
    WHERE kind = 'tool_result' AND call_id IS NOT NULL
    GROUP BY run_id, rollout_id, call_id
),
doubled AS (
    -- An id that several calls of a rollout have means none of them.
    SELECT run_id, rollout_id, call_id FROM calls GROUP BY run_id, rollout_id, call_id HAVING count(*) > 1
),
-- Which requests are compared is known by narrow columns; where there are none, nothing wide is read.
pair AS (
    SELECT child.run_id, child.rollout_id, child.call_id, child.call_index, child.parent_call_id
    FROM (
        SELECT run_id, rollout_id, call_id, call_index, parent_call_id FROM calls
        WHERE break_reason IS NULL AND continues_call_id IS NULL AND coalesce(kind, 'act') = 'act'
            AND parent_call_id IS NOT NULL AND request IS NOT NULL
    ) AS child
    JOIN (
        SELECT run_id, rollout_id, call_id FROM calls
        WHERE coalesce(kind, 'act') = 'act' AND request IS NOT NULL
    ) AS parent
        ON parent.run_id = child.run_id AND parent.rollout_id = child.rollout_id AND parent.call_id = child.parent_call_id
    WHERE NOT EXISTS (
        SELECT 1 FROM doubled
        WHERE doubled.run_id = parent.run_id AND doubled.rollout_id = parent.rollout_id AND doubled.call_id = parent.call_id
    )
),
judged AS (
    SELECT
        child.run_id, child.step, child.group_id, child.rollout_id, child.call_id, child.parent_call_id,
        update_fault(child.request, parent.request, parent.parsed, parent.response, parent.choice_index, parent.output_text,
            result.results) AS fault
    FROM (SELECT DISTINCT run_id, rollout_id, call_id, parent_call_id FROM pair) AS pair
    JOIN (
        SELECT run_id, step, group_id, rollout_id, call_id, parent_call_id, request FROM calls
        WHERE break_reason IS NULL AND continues_call_id IS NULL AND coalesce(kind, 'act') = 'act' AND request IS NOT NULL
    ) AS child
        ON child.run_id = pair.run_id AND child.rollout_id = pair.rollout_id AND child.call_id = pair.call_id
        AND child.parent_call_id = pair.parent_call_id
    JOIN (
        SELECT run_id, rollout_id, call_id, request, parsed, response, choice_index, output_text FROM calls
        WHERE coalesce(kind, 'act') = 'act' AND request IS NOT NULL
    ) AS parent
        ON parent.run_id = pair.run_id AND parent.rollout_id = pair.rollout_id AND parent.call_id = pair.parent_call_id
    LEFT JOIN result
        ON result.run_id = parent.run_id AND result.rollout_id = parent.rollout_id AND result.call_id = parent.call_id
)
SELECT
    run_id, step, group_id, rollout_id, call_id, fault['expected'] AS expected, fault['observed'] AS observed,
    CASE fault['place']
        WHEN 'history' THEN concat('message ', fault['index'], ' of the request of ', call_id, ' is not that of ', parent_call_id,
            ', and no break is declared')
        WHEN 'answer' THEN concat('message ', fault['index'], ' of the request of ', call_id, ' is not what ', parent_call_id, ' answered')
        WHEN 'reasoning' THEN concat('message ', fault['index'], ' of the request of ', call_id, ' has not the reasoning of ', parent_call_id)
        WHEN 'tool_calls' THEN concat('message ', fault['index'], ' of the request of ', call_id, ' calls other tools than ', parent_call_id)
        WHEN 'order' THEN concat('message ', fault['index'], ' of the request of ', call_id, ' holds a result of ', parent_call_id,
            '''s tools before an earlier one')
        ELSE concat('message ', fault['index'], ' of the request of ', call_id, ' does not hold a result of ', parent_call_id, '''s tools')
    END AS message
FROM judged
WHERE fault IS NOT NULL
