-- @kind reward
-- @doc Leaves out groups that teach nothing, in the forms that trainers have. What is left out has no reward, with
--   the reason zero_variance or group_mean; statistics are over the rollouts that have a reward. A rollout without a
--   group has nothing to differ from and goes; a NaN or infinite reward is an error. Rollouts for training and for
--   evaluation are groups of their own.
-- @formula kept where std > tol (std), max - min > tol (range), not all equal or alone (exact), low < mean < high (mean), or the others are not all equal (leave_one_out)
-- @source std: slime (1e-6); range: SkyRL (1e-6), ART (1e-12, a singleton goes); exact: verl filter_groups (np.std == 0, a singleton stays), rLLM; mean: OpenRLHF dynamic_filtering (0, 1); leave_one_out: NeMo RL dynamic sampling
-- @differs leave_one_out is per rollout: it drops the lone winner of a group and keeps the losers, as NeMo RL does with its leave-one-out std
-- @param form string = exact : std, range, exact, mean or leave_one_out
-- @param tol double = 1e-6 : of std and range
-- @param ddof long = 1 : of std; a group with no more members than this has none and goes
-- @param low double = 0 : of mean
-- @param high double = 1 : of mean
-- @check the form is std, range, exact, mean or leave_one_out, not {form}
--   SELECT $form AS form WHERE $form IS NULL OR $form NOT IN ('std', 'range', 'exact', 'mean', 'leave_one_out')
-- @check ddof is 0 or 1, not {ddof}
--   SELECT $ddof AS ddof WHERE $ddof IS NULL OR $ddof NOT IN (0, 1)
-- @check the reward of rollout {rollout_id} of run {run_id} is {value}, no finite number
--   SELECT run_id, rollout_id, value FROM reward
--   WHERE isnan(value) OR abs(value) > 1.7976931348623157e308
--   ORDER BY run_id, rollout_id, call_id
--   LIMIT 1
-- @test equal rewards go, a singleton stays
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 1}
--     {"rollout_id": "c", "group_id": "g", "value": null, "exclusion_reason": "no_score"}
--     {"rollout_id": "d", "group_id": "h", "value": 1} {"rollout_id": "e", "group_id": "h", "value": 1e-300}
--     {"rollout_id": "f", "group_id": "i", "value": 1} {"rollout_id": "h", "value": 1}
--   expect {"rollout_id": "a", "value": null, "exclusion_reason": "zero_variance"}
--   expect {"rollout_id": "b", "value": null, "exclusion_reason": "zero_variance"}
--   expect {"rollout_id": "c", "value": null, "exclusion_reason": "no_score"}
--   expect {"rollout_id": "d", "value": 1, "exclusion_reason": null} {"rollout_id": "e", "value": 1e-300}
--   expect {"rollout_id": "f", "value": 1} {"rollout_id": "h", "value": null, "exclusion_reason": "no_group"}
-- @test a std of 1.2e-6 is above the bound, one of 8e-7 is not, a singleton has none
--   reward {"rollout_id": "a", "group_id": "g", "value": 0} {"rollout_id": "b", "group_id": "g", "value": 1.7e-6}
--     {"rollout_id": "c", "group_id": "h", "value": 0} {"rollout_id": "d", "group_id": "h", "value": 1.1e-6}
--     {"rollout_id": "e", "group_id": "i", "value": 1}
--   param form=std
--   expect {"rollout_id": "a", "value": 0} {"rollout_id": "b", "value": 1.7e-6} {"rollout_id": "c", "value": null}
--   expect {"rollout_id": "d", "value": null} {"rollout_id": "e", "value": null, "exclusion_reason": "zero_variance"}
-- @test a range
--   reward {"rollout_id": "a", "group_id": "g", "value": 0} {"rollout_id": "b", "group_id": "g", "value": 0.25}
--     {"rollout_id": "c", "group_id": "h", "value": 0} {"rollout_id": "d", "group_id": "h", "value": 0.5}
--   param form=range
--   param tol=0.25
--   expect {"rollout_id": "a", "value": null} {"rollout_id": "b", "value": null} {"rollout_id": "c", "value": 0}
--   expect {"rollout_id": "d", "value": 0.5}
-- @test means of 0, 0.5 and 1
--   reward {"rollout_id": "a", "group_id": "g", "value": 0} {"rollout_id": "b", "group_id": "h", "value": 0}
--     {"rollout_id": "c", "group_id": "h", "value": 1} {"rollout_id": "d", "group_id": "i", "value": 1}
--   param form=mean
--   expect {"rollout_id": "a", "value": null, "exclusion_reason": "group_mean"} {"rollout_id": "b", "value": 0}
--   expect {"rollout_id": "c", "value": 1} {"rollout_id": "d", "value": null, "exclusion_reason": "group_mean"}
-- @test the lone winner goes and the losers stay; with two winners all stay
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--     {"rollout_id": "c", "group_id": "g", "value": 0} {"rollout_id": "d", "group_id": "h", "value": 1}
--     {"rollout_id": "e", "group_id": "h", "value": 1} {"rollout_id": "f", "group_id": "h", "value": 0}
--     {"rollout_id": "h", "group_id": "h", "value": 0} {"rollout_id": "i", "group_id": "j", "value": 1}
--   param form=leave_one_out
--   expect {"rollout_id": "a", "value": null, "exclusion_reason": "zero_variance"} {"rollout_id": "b", "value": 0}
--   expect {"rollout_id": "c", "value": 0} {"rollout_id": "d", "value": 1} {"rollout_id": "e", "value": 1}
--   expect {"rollout_id": "f", "value": 0} {"rollout_id": "h", "value": 0} {"rollout_id": "i", "value": null}
WITH members AS (
    SELECT *, $group_key AS group_value FROM reward
),
counted AS (
    SELECT
        *,
        count(value) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS members,
        count(value) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value, value) AS equal,
        avg(value) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS mean,
        min(value) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS least,
        max(value) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS most
    FROM members
),
spread AS (
    -- Differences are scaled before they are squared: 1e-300 and 1e300 have squares that no double holds.
    SELECT
        *,
        greatest(most - mean, mean - least) AS size,
        sum(CASE WHEN value = least OR value = most THEN 1 WHEN value IS NOT NULL THEN 0 END)
            OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) AS extremes
    FROM counted
),
scaled AS (
    SELECT
        *,
        CASE WHEN size > 0.0 THEN sum(power((value - mean) / size, 2)) OVER (PARTITION BY run_id, COALESCE(purpose, 'train'), group_value) ELSE 0.0 END AS squares
    FROM spread
),
judged AS (
    SELECT
        *,
        CASE $form
            WHEN 'std' THEN members > $ddof AND size * sqrt(squares / (members - $ddof)) > $tol
            WHEN 'range' THEN most - least > $tol
            WHEN 'exact' THEN members = 1 OR most > least
            WHEN 'mean' THEN mean > $low AND mean < $high
            ELSE most > least AND NOT (extremes = members AND equal = 1 AND members > 2) AND members > 2
        END AS is_kept
    FROM scaled
)
SELECT
    run_id,
    rollout_id,
    call_id,
    CASE WHEN group_value IS NOT NULL AND is_kept THEN value END AS value,
    CASE
        WHEN value IS NULL THEN exclusion_reason
        WHEN group_value IS NULL THEN 'no_group'
        WHEN NOT is_kept THEN CASE WHEN $form = 'mean' THEN 'group_mean' ELSE 'zero_variance' END
    END AS exclusion_reason
FROM judged
