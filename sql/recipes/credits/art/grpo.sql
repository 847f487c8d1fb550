-- @kind credit
-- @doc OpenPipe ART: reward less the group's mean, over the group's population standard deviation. Quirk: a member
--   exactly at the mean has advantage 0 and is dropped from training. With packed, the advantages as they stand in a
--   packed batch: balanced, then divided by their mean size over trained tokens. A rollout without a reward is no
--   member of its group and gets no credit; one without a group has nothing to be compared with.
-- @formula A = (r - mean) / (std + 1e-6), std with ddof 0; r - mean without scale_rewards; 0 where the group has one member
--   or differs by at most 1e-12. Packed: negatives times 1 - b for b > 0, positives times 1 + b for b < 0, over
--   mean(|A| * w), w = 1 / (T + 1e-6)
-- @source openpipe-art 0.5.23, art/preprocessing/tokenize.py, pack.py
-- @differs ddof 0 (verl, TRL, SkyRL: 1). A credit of 0 trains nothing here; drop_zero=false is the corrected form.
--   Additional histories share the credit of their trajectory, which votes once.
-- @param scale_rewards boolean = true : false does not divide
-- @param drop_zero boolean = true : whether a credit of 0 is null, so that its tokens do not train
-- @param packed boolean = false : whether advantages are those of a packed batch
-- @param advantage_balance double = 0 : from -1 to 1: above 0 makes negative advantages smaller, below 0 positive ones;
--   packed only
-- @param batch_key expression = step : expression over rollouts that names the batch
-- @check advantage_balance must lie between -1 and 1
--   SELECT $advantage_balance AS given WHERE abs($advantage_balance) > 1
-- @check rollout {rollout_id} of run {run_id} has a reward, but no call with a known output: import its calls
--   SELECT reward.run_id, reward.rollout_id
--   FROM reward
--   LEFT JOIN (SELECT DISTINCT run_id AS known_run, rollout_id AS known_rollout FROM calls WHERE output_len IS NOT NULL) AS known
--     ON known.known_run = reward.run_id AND known.known_rollout = reward.rollout_id
--   WHERE reward.call_id IS NULL AND reward.value IS NOT NULL AND $packed AND known.known_rollout IS NULL
--   ORDER BY reward.run_id, reward.rollout_id
--   LIMIT 1
-- @test one of four wins, one is alone, two are equal
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "g", "value": 0}
--     {"rollout_id": "e", "group_id": "h", "value": 0.5} {"rollout_id": "f", "group_id": "i", "value": 0.3}
--     {"rollout_id": "h", "group_id": "i", "value": 0.3}
--   expect {"rollout_id": "a", "value": 1.732046807578115} {"rollout_id": "b", "value": -0.5773489358593717}
--     {"rollout_id": "c", "value": -0.5773489358593717} {"rollout_id": "d", "value": -0.5773489358593717}
--     {"rollout_id": "e", "value": null} {"rollout_id": "f", "value": null} {"rollout_id": "h", "value": null}
WITH compared AS (
    SELECT
        reward.*,
        CASE
            WHEN $group_key IS NULL THEN NULL
            WHEN value IS NOT NULL AND max(value) OVER (PARTITION BY run_id, $group_key) - min(value) OVER (PARTITION BY run_id, $group_key) <= 1e-12 THEN 0.0
            WHEN $scale_rewards THEN grpo(value, rollout_id, ddof => 0) OVER (PARTITION BY run_id, $group_key)
            ELSE dr_grpo(value, rollout_id) OVER (PARTITION BY run_id, $group_key)
        END AS credit,
        CAST($group_key AS VARCHAR) AS baseline_key,
        CAST(rollout_count(value, rollout_id) OVER (PARTITION BY run_id, $group_key) AS INTEGER) AS baseline_count
    FROM reward
    WHERE call_id IS NULL
),
kept AS (
    SELECT *, CASE WHEN NOT $drop_zero OR credit <> 0 THEN credit END AS kept
    FROM compared
),
balanced AS (
    SELECT
        kept.*,
        CASE
            WHEN kept < 0 AND $advantage_balance > 0 THEN kept * (1.0 - $advantage_balance)
            WHEN kept > 0 AND $advantage_balance < 0 THEN kept * (1.0 + $advantage_balance)
            ELSE kept
        END AS balanced,
        -- Each trajectory weighs 1 / (T + 1e-6) a token.
        COALESCE(known.trained_tokens / (known.trained_tokens + 1e-6), 0.0) AS weight
    FROM kept
    LEFT JOIN rollout_rows AS known ON known.run_id = kept.run_id AND known.rollout_id = kept.rollout_id
)
SELECT
    run_id,
    rollout_id,
    'advantage' AS quantity,
    'rollout' AS level,
    CASE
        WHEN $packed THEN balanced / rollout_mean(abs(balanced), rollout_id, weight => weight) OVER (PARTITION BY run_id, $batch_key)
        ELSE kept
    END AS value,
    'group' AS baseline_scope,
    baseline_key,
    baseline_count
FROM balanced
