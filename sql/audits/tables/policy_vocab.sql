-- How many ids each policy of a run declares to have, the fewest where its versions differ.
SELECT run_id, coalesce(policy_id, 'policy') AS policy_id, min(vocab_size) AS vocab_size
FROM policies
WHERE vocab_size IS NOT NULL
GROUP BY run_id, coalesce(policy_id, 'policy')
