-- @question Is every reward and credit what its recipe, the run's rule or a known formula gives?
-- @layer credit
-- @severity error
-- @version 1
-- @outcome violation
-- @needs derivations.recipe, derivations.snapshot, derivations.functions, derivations.upstream_derivation_ids, rewards.value,
--   rewards.components, credits.value, credits.token_values, scores.value, token_signals.values, runs.credit_rule
-- @examined
--   SELECT run_id, count(*) AS examined FROM rewards GROUP BY run_id
--   UNION ALL SELECT run_id, count(*) FROM credits GROUP BY run_id
-- @undeclared
--   SELECT run_id, derivation_id, missing, remedy FROM rederived WHERE missing IS NOT NULL
SELECT
    outcome, run_id, step, group_id, rollout_id, call_id, derivation_id, position,
    CASE WHEN position IS NOT NULL THEN 'output' END AS position_in,
    length, expected, observed, message
FROM rederived
WHERE missing IS NULL
