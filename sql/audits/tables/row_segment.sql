-- What trainer rows say of whence their tokens come.
SELECT
    run_id, build_id, coalesce(segment['rollout_id'], rollout_id) AS rollout_id, segment['call_id'] AS call_id
FROM (SELECT run_id, build_id, rollout_id, unnest(segments) AS segment FROM samples)
