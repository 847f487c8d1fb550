-- The credits that each build was made from: the upstream of its derivation, or what it names itself where that is a credit.
SELECT build.run_id, build.build_id, credit.derivation_id
FROM (
    SELECT build.run_id, build.build_id, unnest(derivation.upstream_derivation_ids) AS derivation_id
    FROM row_build AS build
    JOIN derivations AS derivation ON derivation.derivation_id = build.derivation_id
    UNION ALL
    SELECT run_id, build_id, derivation_id FROM row_build WHERE derivation_id IS NOT NULL
) AS build
JOIN (SELECT DISTINCT run_id, derivation_id FROM credits_history) AS credit
    ON credit.run_id = build.run_id AND credit.derivation_id = build.derivation_id
GROUP BY build.run_id, build.build_id, credit.derivation_id
