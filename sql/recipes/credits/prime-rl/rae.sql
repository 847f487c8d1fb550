-- @kind credit
-- @doc prime-rl's RAE: reward less a moving average of the rewards that the same agent got in the same environment
--   before. Depends on the order of scoring, which a column must give.
-- @formula A = r - m, then m = decay * m + (1 - decay) * r; m begins at 0
-- @source prime-rl, orchestrator/advantage.py; arXiv 2506.24119
-- @differs The only credit that depends on order: equal positions follow the rollout id here, the arrival in prime-rl.
-- @param decay double = 0.95 : share of the old average that stays
-- @param environment expression = environment : expression over rollouts that names the environment
-- @param agent expression = harness : expression over rollouts that names the agent
-- @param position expression = CAST(finished_at AS BIGINT) : integer expression over rollouts that orders the scoring
-- @check rollout {rollout_id} of run {run_id} has a reward and no position: give the parameter position
--   SELECT run_id, rollout_id FROM reward
--   WHERE call_id IS NULL AND value IS NOT NULL AND $position IS NULL
--   ORDER BY run_id, rollout_id
--   LIMIT 1
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    rae(value, rollout_id, $position, decay => $decay) OVER (PARTITION BY run_id, $environment, $agent) AS value,
    'running' AS baseline_scope,
    concat_ws('/', CAST($environment AS VARCHAR), CAST($agent AS VARCHAR)) AS baseline_key
FROM reward
WHERE call_id IS NULL
