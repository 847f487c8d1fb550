//! The `extra` column: what a source says beyond the schema, as one JSON object.

use std::collections::BTreeSet;

use crate::json::{Parse, compact, members, quote};

/// Joins the extra that a row gives with its unknown members; a name that both have is kept as `column:<name>`.
pub(crate) fn merge_extra(given: Option<&str>, unknown: &[(impl AsRef<str>, impl AsRef<str>)]) -> Parse<String> {
    let mut taken = BTreeSet::new();
    let mut out = String::from("{");
    let mut add = |key: &str, value: &str| {
        if out.len() > 1 {
            out.push(',');
        }
        quote(key, &mut out);
        out.push(':');
        compact(value, &mut out);
    };
    match given {
        Some(given) if given.starts_with('{') => {
            for (key, value) in members(given)? {
                add(&key, value);
                taken.insert(key.into_owned());
            }
        }
        Some(given) => {
            add("extra", given);
            taken.insert("extra".to_owned());
        }
        None => {}
    }
    for (key, value) in unknown {
        let key = key.as_ref();
        let name = if taken.contains(key) { format!("column:{key}") } else { key.to_owned() };
        add(&name, value.as_ref());
        taken.insert(name);
    }
    out.push('}');
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_kept_whatever_their_names() {
        let unknown = [("a", "1"), ("b", "[ 2 ]")];
        assert_eq!(merge_extra(None, &unknown).unwrap(), r#"{"a":1,"b":[2]}"#);
        assert_eq!(merge_extra(Some(r#"{"a": 0}"#), &unknown).unwrap(), r#"{"a":0,"column:a":1,"b":[2]}"#);
        assert_eq!(merge_extra(Some("5"), &unknown).unwrap(), r#"{"extra":5,"a":1,"b":[2]}"#);
    }
}
