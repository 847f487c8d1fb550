-- One row per rollout with a trainable call that has tokens: the rows that a trainer would have of it, and its trained tokens.
--
-- call_rows = one row a call; merged_rows = one row a chain of exact extensions, as the build `merged` makes them (view
-- call_rows).
SELECT
    run_id,
    rollout_id,
    count(*) AS call_rows,
    count(DISTINCT row_id) AS merged_rows,
    sum(trained_tokens) AS trained_tokens
FROM call_rows
GROUP BY run_id, rollout_id
