//! Which crate may depend on which: arrows only downwards, as ARCHITECTURE.md draws them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Complaints;

/// Every crate of the workspace with the workspace crates it depends on, tests aside. A new edge is a decision.
const EDGES: &[(&str, &[&str])] = &[
    (
        "rollbook-cli",
        &[
            "rollbook-audit",
            "rollbook-query",
            "rollbook-lake",
            "rollbook-functions",
            "rollbook-import",
            "rollbook-schema",
        ],
    ),
    (
        "rollbook-audit",
        &["rollbook-query", "rollbook-lake", "rollbook-functions", "rollbook-encoding", "rollbook-schema"],
    ),
    (
        "rollbook-query",
        &["rollbook-lake", "rollbook-functions", "rollbook-import", "rollbook-encoding", "rollbook-schema"],
    ),
    ("rollbook-lake", &["rollbook-schema"]),
    ("rollbook-functions", &["rollbook-schema"]),
    ("rollbook-import", &["rollbook-schema"]),
    ("rollbook-encoding", &[]),
    ("rollbook-schema", &[]),
    ("rollbook-testing", &["rollbook-schema"]),
    ("xtask", &["rollbook-schema"]),
];

/// Crates that only measure and test: they may depend on anything.
const DEVELOPMENT_ONLY: &[&str] = &["rollbook-tests", "rollbook-benches"];

/// Dependencies a crate must never have, with the wall they would break.
const WALLS: &[(&str, &[&str], &str)] = &[
    (
        "rollbook-schema",
        &["tokio", "object_store", "parquet", "datafusion", "deltalake-core"],
        "the schema does no I/O",
    ),
    ("rollbook-lake", &["datafusion", "datafusion-expr"], "the lake never sees SQL"),
    ("rollbook-import", &["object_store", "datafusion", "deltalake-core"], "importers know no storage"),
    ("rollbook-functions", &["datafusion", "object_store", "parquet"], "functions never read a table"),
    (
        "rollbook-encoding",
        &["tokio", "object_store", "arrow", "datafusion"],
        "templates and tokenizers work on text alone",
    ),
];

/// Packages by name, each with its ordinary dependencies.
type Packages = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(metadata: &Value, complaints: &mut Complaints) {
    let packages = packages(metadata);
    for (name, dependencies) in packages.iter().filter(|(name, _)| !DEVELOPMENT_ONLY.contains(&name.as_str())) {
        let found: BTreeSet<&str> =
            dependencies.iter().map(String::as_str).filter(|dependency| packages.contains_key(*dependency)).collect();
        let Some((_, listed)) = EDGES.iter().find(|(listed, _)| listed == name) else {
            complaints.errors.push(format!("{name}: a new crate needs a line in xtask's list of edges"));
            continue;
        };
        let listed: BTreeSet<&str> = listed.iter().copied().collect();
        for surplus in found.difference(&listed) {
            complaints.errors.push(format!("{name} -> {surplus}: not in xtask's list of edges"));
        }
        for missing in listed.difference(&found) {
            complaints.errors.push(format!("{name} -> {missing}: listed in xtask, but no longer there"));
        }
    }
    for (name, forbidden, wall) in WALLS {
        let Some(dependencies) = packages.get(*name) else {
            continue;
        };
        for dependency in forbidden.iter().filter(|dependency| dependencies.contains(**dependency)) {
            complaints.errors.push(format!("{name} -> {dependency}: {wall}"));
        }
    }
}

fn packages(metadata: &Value) -> Packages {
    let list = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .filter_map(|package| {
            let dependencies = package["dependencies"].as_array()?;
            let ordinary = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
            let names = ordinary.filter_map(|dependency| dependency["name"].as_str()).map(str::to_owned);
            Some((package["name"].as_str()?.to_owned(), names.collect()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Value {
        let dependencies: Vec<Value> =
            dependencies.iter().map(|dependency| json!({ "name": dependency, "kind": null })).collect();
        json!({ "name": name, "dependencies": dependencies })
    }

    #[test]
    fn upward_edge_and_broken_wall_are_named() {
        let packages = [
            package("rollbook-lake", &["rollbook-schema", "rollbook-query", "datafusion"]),
            package("rollbook-schema", &[]),
            package("rollbook-query", &[]),
        ];
        let mut complaints = Complaints::default();
        check(&json!({ "packages": packages }), &mut complaints);
        let text = complaints.errors.join("\n");
        assert!(text.contains("rollbook-lake -> rollbook-query: not in"));
        assert!(text.contains("rollbook-lake -> datafusion: the lake never sees SQL"));
    }
}
