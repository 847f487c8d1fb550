-- @question Does every trained call stand in a row after the call that it continues?
-- @layer sample
-- @severity error
-- @version 1
-- @outcome violation
-- @scope build
-- @needs samples.segments, calls.parent_call_id
-- @examined
--   SELECT link.run_id, count(*) AS examined
--   FROM row_link AS link
--   JOIN (SELECT DISTINCT run_id, call_id FROM calls WHERE parent_call_id IS NOT NULL OR continues_call_id IS NOT NULL) AS call
--     ON call.run_id = link.run_id AND call.call_id = link.call_id
--   GROUP BY link.run_id
-- @undeclared
--   SELECT run_id, build_id, 'samples.segments' AS missing,
--       concat('say of which call each token of a row comes; ', count(*), ' rows do not') AS remedy
--   FROM samples WHERE segments IS NULL AND NOT coalesce(is_pad, false) GROUP BY run_id, build_id
-- @undeclared
--   SELECT link.run_id, link.build_id, 'calls.parent_call_id' AS missing,
--       concat('name the call that each one continues; ', count(*), ' calls stand in a row after another one and name none,',
--           ' and equal tokens do not tell which of two chains they belong to') AS remedy
--   FROM row_link AS link
--   JOIN (
--     SELECT DISTINCT run_id, call_id FROM calls WHERE parent_call_id IS NULL AND continues_call_id IS NULL
--   ) AS call ON call.run_id = link.run_id AND call.call_id = link.call_id
--   GROUP BY link.run_id, link.build_id
WITH RECURSIVE placed AS (
    SELECT link.*, call.parent_call_id, call.continues_call_id
    FROM row_link AS link
    JOIN (
        SELECT run_id, rollout_id, call_id, parent_call_id, continues_call_id FROM calls
        WHERE parent_call_id IS NOT NULL OR continues_call_id IS NOT NULL
    ) AS call
        ON call.run_id = link.run_id AND call.call_id = link.call_id
        AND (link.rollout_id IS NULL OR call.rollout_id IS NULL OR call.rollout_id = link.rollout_id)
),
elsewhere AS (
    SELECT DISTINCT * FROM placed
    WHERE previous_call_id IS DISTINCT FROM parent_call_id AND previous_call_id IS DISTINCT FROM continues_call_id
),
-- An earlier call of the same chain may be the last whose output stands in the row, where those between are excluded.
ancestor AS (
    SELECT DISTINCT run_id, call_id, coalesce(continues_call_id, parent_call_id) AS ancestor_id, 1 AS distance FROM elsewhere
    UNION ALL
    SELECT ancestor.run_id, ancestor.call_id, call.parent_call_id, ancestor.distance + 1
    FROM ancestor
    JOIN (SELECT DISTINCT run_id, call_id, parent_call_id FROM calls WHERE parent_call_id IS NOT NULL) AS call
        ON call.run_id = ancestor.run_id AND call.call_id = ancestor.ancestor_id
    WHERE ancestor.distance < 500
)
SELECT
    place.run_id, place.step, place.rollout_id, place.call_id, place.build_id, place.epoch, place.micro_batch, place.rank, place.row_index,
    place.row_start AS position,
    'row' AS position_in,
    concat('after ', coalesce(place.continues_call_id, place.parent_call_id)) AS expected,
    concat('after ', place.previous_call_id) AS observed,
    concat('from row token ', place.row_start, ' on stands ', place.call_id, ' after ', place.previous_call_id,
        ', but it continues ', coalesce(place.continues_call_id, place.parent_call_id)) AS message
FROM elsewhere AS place
LEFT ANTI JOIN (SELECT DISTINCT run_id, call_id, ancestor_id FROM ancestor) AS known
    ON known.run_id = place.run_id AND known.call_id = place.call_id AND known.ancestor_id = place.previous_call_id
-- Where the tokens before it differ as well, token/prefix has told it.
LEFT ANTI JOIN row_prefix_breaks AS broken
    ON broken.run_id = place.run_id AND broken.call_id = place.call_id
    AND broken.build_id IS NOT DISTINCT FROM place.build_id AND broken.row_index IS NOT DISTINCT FROM place.row_index
    AND broken.step IS NOT DISTINCT FROM place.step AND broken.epoch IS NOT DISTINCT FROM place.epoch
    AND broken.micro_batch IS NOT DISTINCT FROM place.micro_batch AND broken.rank IS NOT DISTINCT FROM place.rank
