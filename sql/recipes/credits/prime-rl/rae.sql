-- @kind credit
-- @doc prime-rl's RAE: reward less a moving average of the rewards that the same agent got in the same environment
--   before. Depends on the order of scoring, which a column must give.
-- @formula A = r - m, then m = decay * m + (1 - decay) * r; m begins at 0
-- @source prime-rl at commit 559b4477, src/prime_rl/orchestrator/algo/rae.py; arXiv 2506.24119
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
-- @test each against the average of those before it
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   param position=ascii(rollout_id)
--   param environment='e'
--   param agent='a'
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": -0.05} {"rollout_id": "c", "value": -0.0475}
--     {"rollout_id": "d", "value": -0.045125} {"rollout_id": "e", "value": 0.45713125}
--     {"rollout_id": "f", "value": 0.2342746875} {"rollout_id": "h", "value": 0.222560953125}
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
