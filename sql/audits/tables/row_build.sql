-- Each build as a run that has rows of it sees it: what the run itself says of the build, else what is said of that id elsewhere.
--
-- Trainers number their builds by themselves, so that two runs of a lake may each have a build 0.
WITH row AS (
    SELECT run_id, build_id FROM samples WHERE build_id IS NOT NULL
    UNION
    SELECT run_id, build_id FROM exclusions WHERE build_id IS NOT NULL
    UNION
    SELECT run_id, build_id FROM builds WHERE build_id IS NOT NULL
),
own AS (
    SELECT DISTINCT run_id, build_id FROM builds
)
SELECT
    row.run_id, row.build_id, build.origin, build.derivation_id, build.objective_unit, build.objective_scope, build.objective_constant,
    build.advantage_scale, build.kl_estimator, build.logprobs_mode, build.reported
FROM row
JOIN builds AS build ON build.build_id = row.build_id
LEFT JOIN own ON own.run_id = row.run_id AND own.build_id = row.build_id
WHERE own.build_id IS NULL OR build.run_id = row.run_id
