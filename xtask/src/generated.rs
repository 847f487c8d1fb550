//! Generated files: written, or compared with what is there.

use std::{fs, path::PathBuf};

use crate::{Outcome, process};

/// One generated file of the repository.
pub(crate) struct Generated {
    /// Path below the root.
    pub(crate) path: &'static str,
    /// What it should hold.
    pub(crate) text: String,
    /// Command that writes it.
    pub(crate) command: &'static str,
}

/// Writes the files, or fails naming the first line that differs.
pub(crate) fn settle(files: &[Generated], check: bool) -> Outcome {
    let mut stale = Vec::new();
    for file in files {
        let path: PathBuf = process::root().join(file.path);
        let present = fs::read_to_string(&path).unwrap_or_default();
        if present == file.text {
            continue;
        }
        if check {
            stale.push(format!("{}: {}; run {}", file.path, first_difference(&present, &file.text), file.command));
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, &file.text)?;
        println!("wrote {}", file.path);
    }
    if stale.is_empty() { Ok(()) } else { Err(stale.join("\n").into()) }
}

fn first_difference(present: &str, wanted: &str) -> String {
    if present.is_empty() {
        return "missing".to_owned();
    }
    let same = present.lines().zip(wanted.lines()).take_while(|(left, right)| left == right).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("the end").to_owned();
    format!("line {} is `{}`, should be `{}`", same + 1, line(present), line(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_difference_names_the_line() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), "line 2 is `b`, should be `c`");
        assert_eq!(first_difference("a\n", "a\nc\n"), "line 2 is `the end`, should be `c`");
    }
}
