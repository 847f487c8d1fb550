-- @question Do the placeholders of each image, sound or video stand for it, and for the same one from call to call?
-- @layer encoding
-- @severity error
-- @version 2
-- @outcome violation
-- @scope rollout
-- @needs calls.multimodal_spans, calls.prompt_token_ids, calls.parent_call_id, runs.pad_token_id
-- @examined
--   SELECT run_id, sum(cardinality(multimodal_spans)) AS examined
--   FROM calls WHERE cardinality(multimodal_spans) > 0 GROUP BY run_id
-- @undeclared
--   SELECT child.run_id, 'calls.multimodal_spans' AS missing,
--       concat('say of each call where its media stand; ', count(*), ' calls continue one with media and do not') AS remedy
--   FROM calls AS child
--   JOIN (SELECT DISTINCT run_id, call_id FROM calls WHERE cardinality(multimodal_spans) > 0) AS parent
--     ON parent.run_id = child.run_id AND parent.call_id = child.parent_call_id
--   WHERE child.multimodal_spans IS NULL AND child.break_reason IS NULL
--   GROUP BY child.run_id
-- @undeclared
--   SELECT run_id, 'calls.multimodal_spans.digest' AS missing,
--       concat('record the digest of each medium: equal placeholders hide another image; ', count(*), ' media have none') AS remedy
--   FROM (SELECT run_id, unnest(multimodal_spans) AS span FROM calls WHERE cardinality(multimodal_spans) > 0)
--   WHERE span['digest'] IS NULL
--   GROUP BY run_id

-- Prompts are read of the calls with media alone, and not at all where there are none.
WITH pictured AS (
    SELECT call.run_id, call.rollout_id, call.call_id, call.call_index, max(run.pad_token_id) AS pad_token_id
    FROM (SELECT run_id, rollout_id, call_id, call_index FROM calls WHERE cardinality(multimodal_spans) > 0) AS call
    LEFT JOIN runs AS run ON run.run_id = call.run_id
    GROUP BY call.run_id, call.rollout_id, call.call_id, call.call_index
),
within AS (
    SELECT
        call.run_id, call.step, call.group_id, call.rollout_id, call.call_id,
        unnest(media_faults(call.multimodal_spans, call.prompt_token_ids, pictured.pad_token_id)) AS fault
    FROM pictured
    JOIN (
        SELECT run_id, step, group_id, rollout_id, call_id, call_index, multimodal_spans, prompt_token_ids FROM calls
        WHERE cardinality(multimodal_spans) > 0
    ) AS call
        ON call.run_id IS NOT DISTINCT FROM pictured.run_id AND call.rollout_id IS NOT DISTINCT FROM pictured.rollout_id
        AND call.call_id IS NOT DISTINCT FROM pictured.call_id AND call.call_index IS NOT DISTINCT FROM pictured.call_index
),
changed AS (
    SELECT
        child.run_id, child.step, child.group_id, child.rollout_id, child.call_id, child.parent_call_id,
        unnest(media_changes(child.multimodal_spans, parent.multimodal_spans, coalesce(
            child.parent_prefix_len,
            -- A parent in another file: the prompts were compared where no break is declared.
            CAST(broken.position AS INTEGER),
            CASE WHEN far.call_id IS NOT NULL THEN parent.prompt_len + parent.output_len END
        ))) AS fault
    FROM (
        SELECT run_id, step, group_id, rollout_id, call_id, parent_call_id, multimodal_spans, parent_prefix_len FROM calls
        WHERE multimodal_spans IS NOT NULL AND parent_call_id IS NOT NULL AND coalesce(parent_prefix_len, 1) > 0
    ) AS child
    JOIN (
        SELECT run_id, rollout_id, call_id, multimodal_spans, prompt_len, output_len FROM calls WHERE multimodal_spans IS NOT NULL
    ) AS parent
        ON parent.run_id = child.run_id AND parent.call_id = child.parent_call_id
        AND parent.rollout_id IS NOT DISTINCT FROM child.rollout_id
    LEFT JOIN (SELECT DISTINCT run_id, rollout_id, call_id FROM far_parent) AS far
        ON far.run_id = child.run_id AND far.call_id = child.call_id AND far.rollout_id IS NOT DISTINCT FROM child.rollout_id
    LEFT JOIN (SELECT run_id, rollout_id, call_id, min(position) AS position FROM far_prefix_breaks GROUP BY run_id, rollout_id, call_id) AS broken
        ON broken.run_id = child.run_id AND broken.call_id = child.call_id AND broken.rollout_id IS NOT DISTINCT FROM child.rollout_id
)
SELECT
    run_id, step, group_id, rollout_id, call_id,
    fault['position'] AS position,
    'prompt' AS position_in,
    fault['length'] AS length,
    fault['expected'] AS expected,
    fault['observed'] AS observed,
    CASE fault['kind']
        WHEN 'count' THEN
            concat('the medium at prompt token ', fault['position'], ' of ', call_id, ' has ', fault['observed'],
                ' placeholders, which are not ', fault['expected'])
        WHEN 'run' THEN
            concat('at prompt token ', fault['position'], ' of ', call_id, ' stand ', fault['observed'],
                ' placeholders in a row, of which the span covers ', fault['expected'])
        WHEN 'moved' THEN
            concat('the media span at prompt token ', fault['position'], ' of ', call_id, ' covers other tokens, and as many placeholders stand',
                ' just outside it: it is moved')
        WHEN 'unlike' THEN
            concat('the medium at prompt token ', fault['position'], ' of ', call_id, ' has ', fault['observed'],
                ' placeholders, and another of the same grid in this prompt has not')
        WHEN 'pad' THEN
            concat('the media span at prompt token ', fault['position'], ' of ', call_id, ' covers pad ids: spans and ids were aligned otherwise')
        ELSE concat('the media spans of ', call_id, ' overlap at prompt token ', fault['position'])
    END AS message
FROM within
UNION ALL
SELECT
    run_id, step, group_id, rollout_id, call_id, fault['position'], 'prompt', fault['length'], fault['expected'], fault['observed'],
    CASE fault['kind']
        WHEN 'digest' THEN
            concat('the placeholders at prompt token ', fault['position'], ' of ', call_id, ' are those of its parent ', parent_call_id,
                ', but the medium is another: this is no extension')
        WHEN 'count' THEN
            concat('the medium at prompt token ', fault['position'], ' of ', call_id, ' has ', fault['observed'],
                ' placeholders, and ', fault['expected'], ' in its parent ', parent_call_id)
        WHEN 'lost' THEN
            concat('the placeholders at prompt token ', fault['position'], ' of ', call_id, ' stand for a medium in its parent ',
                parent_call_id, ' and for none here')
        ELSE
            concat('the placeholders at prompt token ', fault['position'], ' of ', call_id, ' stand for a medium here and for none in its parent ',
                parent_call_id)
    END
FROM changed
