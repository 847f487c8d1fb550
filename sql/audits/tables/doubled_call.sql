-- Ids that several calls of a run have: such an id means none of them.
SELECT run_id, call_id FROM calls WHERE call_id IS NOT NULL GROUP BY run_id, call_id HAVING count(*) > 1
