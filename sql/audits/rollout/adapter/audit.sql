-- @question Did every trained call run with the adapter that its policy version stands in?
-- @layer policy
-- @severity error
-- @version 2
-- @outcome violation
-- @needs calls.lora_adapter, calls.lora_modules_applied, policies.lora_adapter, runs.lora_adapter
-- @examined
--   SELECT run_id, count(*) AS examined FROM calls
--   WHERE coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact')) GROUP BY run_id
-- @undeclared
--   SELECT named.run_id, 'runs.lora_adapter' AS missing,
--       concat('say which adapter is trained, in the run or with each policy version; ', named.calls, ' calls name one') AS remedy
--   FROM (
--       SELECT run_id, count(*) AS calls FROM calls
--       WHERE lora_adapter IS NOT NULL AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
--       GROUP BY run_id
--   ) AS named
--   LEFT JOIN (
--       SELECT run_id FROM runs WHERE lora_adapter IS NOT NULL
--       UNION SELECT run_id FROM policies WHERE lora_adapter IS NOT NULL
--   ) AS declared ON declared.run_id = named.run_id
--   WHERE declared.run_id IS NULL
WITH act AS (
    SELECT
        run_id, step, group_id, rollout_id, call_id, call_index, agent_id, role, coalesce(policy_id, 'policy') AS policy_id,
        policy_version, lora_adapter, lora_modules_applied, output_len
    FROM calls
    WHERE coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
),
rule AS (
    SELECT run_id, max(lora_adapter) AS lora_adapter FROM runs WHERE lora_adapter IS NOT NULL GROUP BY run_id
),
published AS (
    SELECT
        run_id, coalesce(policy_id, 'policy') AS policy_id, policy_version, min(lora_adapter) AS lora_adapter
    FROM policies
    WHERE lora_adapter IS NOT NULL
    GROUP BY run_id, coalesce(policy_id, 'policy'), policy_version
    HAVING count(DISTINCT lora_adapter) = 1
),
judged AS (
    SELECT
        act.*, rule.lora_adapter AS declared, published.lora_adapter AS published,
        coalesce(published.lora_adapter, rule.lora_adapter) AS wanted
    FROM act
    LEFT JOIN rule ON rule.run_id = act.run_id
    LEFT JOIN published
        ON published.run_id = act.run_id AND published.policy_id = act.policy_id
        AND published.policy_version = act.policy_version
),
-- Where nothing says which adapter is right, one version of a policy still cannot stand in two.
said AS (
    SELECT
        run_id, policy_id, policy_version, coalesce(agent_id, role, '') AS agent, coalesce(lora_adapter, '') AS adapter,
        count(*) AS calls, first_value(rollout_id ORDER BY rollout_id, call_index, call_id) AS rollout_id,
        first_value(call_id ORDER BY rollout_id, call_index, call_id) AS call_id,
        first_value(step ORDER BY rollout_id, call_index, call_id) AS step,
        first_value(group_id ORDER BY rollout_id, call_index, call_id) AS group_id
    FROM judged
    WHERE wanted IS NULL AND policy_version IS NOT NULL
    GROUP BY run_id, policy_id, policy_version, coalesce(agent_id, role, ''), coalesce(lora_adapter, '')
),
ranked AS (
    SELECT
        *,
        row_number() OVER same AS place,
        first_value(adapter) OVER same AS most
    FROM said
    WINDOW same AS (PARTITION BY run_id, policy_id, policy_version, agent ORDER BY calls DESC, adapter DESC)
)
SELECT
    CASE WHEN published IS NULL THEN 'rule' ELSE 'violation' END AS outcome,
    run_id, step, group_id, rollout_id, call_id,
    wanted AS expected,
    coalesce(lora_adapter, 'none') AS observed,
    concat('call ', call_id,
        CASE WHEN lora_adapter IS NULL THEN ' names no adapter' ELSE concat(' ran with adapter ', lora_adapter) END,
        CASE
            WHEN published IS NULL THEN concat(', where the run trains ', wanted)
            ELSE concat(', and version ', policy_version, ' of ', policy_id, ' stands in ', wanted)
        END) AS message
FROM judged
-- Engines name a version's adapter or the trained one.
WHERE wanted IS NOT NULL AND lora_adapter IS DISTINCT FROM wanted
    AND (declared IS NULL OR lora_adapter IS DISTINCT FROM declared)
    AND coalesce(output_len, 1) > 0
UNION ALL
SELECT
    'violation', run_id, step, group_id, rollout_id, call_id, 'at least 1 module', '0 modules',
    concat('the engine applied adapter ', lora_adapter, ' to no module in call ', call_id, ': the base weights sampled it')
FROM act
WHERE lora_adapter IS NOT NULL AND lora_modules_applied = 0
UNION ALL
SELECT
    'violation', act.run_id, act.step, act.group_id, act.rollout_id, act.call_id, concat(usual.modules, ' modules'),
    concat(act.lora_modules_applied, ' modules'),
    concat('the engine applied adapter ', act.lora_adapter, ' to ', act.lora_modules_applied, ' modules in call ', act.call_id, ', and to ',
        usual.modules, ' in others')
FROM act
JOIN (
    SELECT run_id, lora_adapter, max(lora_modules_applied) AS modules FROM act WHERE lora_adapter IS NOT NULL GROUP BY run_id, lora_adapter
) AS usual ON usual.run_id = act.run_id AND usual.lora_adapter = act.lora_adapter
WHERE act.lora_modules_applied > 0 AND act.lora_modules_applied < usual.modules
UNION ALL
SELECT
    'violation', ranked.run_id, ranked.step, ranked.group_id, ranked.rollout_id, ranked.call_id,
    CASE WHEN ranked.most = '' THEN 'none' ELSE ranked.most END,
    CASE WHEN ranked.adapter = '' THEN 'none' ELSE ranked.adapter END,
    concat(ranked.calls, ' calls of version ', ranked.policy_version, ' of ', ranked.policy_id, ', first ', ranked.call_id, ' of rollout ',
        ranked.rollout_id,
        CASE WHEN ranked.adapter = '' THEN ', name no adapter' ELSE concat(', ran with adapter ', ranked.adapter) END,
        CASE WHEN ranked.most = '' THEN ', the others none' ELSE concat(', the others with ', ranked.most) END)
FROM ranked
WHERE place > 1
