-- Digests of what several calls sampled. At temperature 0 equal outputs are what one expects.
SELECT output_digest
FROM calls
WHERE output_len > 0 AND output_digest IS NOT NULL AND rollout_id IS NOT NULL AND coalesce(temperature, 1) > 0
GROUP BY output_digest
HAVING count(*) > 1
