//! Every file of a crate is declared by the module it lies in: a forgotten `mod` line would hide it from the compiler.

use std::collections::BTreeMap;

use super::{Complaints, Source};

pub(super) fn check(sources: &[Source], complaints: &mut Complaints) {
    let texts: BTreeMap<&str, &str> =
        sources.iter().map(|source| (source.path.as_str(), source.text.as_str())).collect();
    for path in texts.keys() {
        let Some((parents, name)) = declared_in(path) else {
            continue;
        };
        let declaration = format!("mod {name};");
        let is_declared = parents
            .iter()
            .filter_map(|parent| texts.get(parent.as_str()))
            .any(|text| text.lines().any(|line| declares(line, &declaration)));
        if !is_declared {
            complaints.errors.push(format!("{path}: no `{declaration}` in {}", parents.join(" or ")));
        }
    }
}

fn declares(line: &str, declaration: &str) -> bool {
    let line = line.trim();
    line == declaration
        || line.strip_suffix(declaration).is_some_and(|head| head.starts_with("pub") && head.ends_with(' '))
}

/// Returns the files that may declare the module at `path`, and its name; none for crate roots.
fn declared_in(path: &str) -> Option<(Vec<String>, &str)> {
    let (source, inside) = path.split_once("src/")?;
    let stem = inside.strip_suffix(".rs")?;
    if matches!(stem, "lib" | "main") || inside.starts_with("bin/") || source.contains("samples/") {
        return None;
    }
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    match stem.rsplit_once('/') {
        Some((folder, name)) => Some((vec![format!("{source}src/{folder}/mod.rs")], name)),
        None => Some((vec![format!("{source}src/lib.rs"), format!("{source}src/main.rs")], stem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_in_names_the_enclosing_module() {
        let roots = vec!["crates/a/src/lib.rs".to_owned(), "crates/a/src/main.rs".to_owned()];
        assert_eq!(declared_in("crates/a/src/b/mod.rs"), Some((roots, "b")));
        assert_eq!(declared_in("crates/a/src/b/c.rs"), Some((vec!["crates/a/src/b/mod.rs".to_owned()], "c")));
        assert_eq!(declared_in("crates/a/src/lib.rs"), None);
    }

    #[test]
    fn declaration_may_be_public_but_not_a_longer_name() {
        assert!(declares("pub(crate) mod a;", "mod a;"));
        assert!(!declares("// mod a;", "mod a;"));
        assert!(!declares("mod aa;", "mod a;"));
    }
}
