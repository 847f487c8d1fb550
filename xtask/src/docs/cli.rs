//! docs/cli.md: the help of every command.

use std::fmt::Write;

use super::{Program, head};
use crate::Outcome;

pub(super) fn page(program: &Program) -> Outcome<String> {
    let overview = program.says(&["--help"])?;
    let mut text = head("Command line");
    write!(text, "```text\n{}\n```\n", overview.trim_end()).ok();
    for command in commands(&overview) {
        let help = program.says(&[command, "--help"])?;
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        write!(text, "\n## rollbook {command}\n\n```text\n{}\n```\n", help.join("\n").trim_end()).ok();
    }
    Ok(text)
}

/// Reads the names of the commands out of the overview.
fn commands(overview: &str) -> Vec<&str> {
    let listed = overview.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_overview() {
        let overview = "About\n\nCommands:\n  init    Make a lake that\n          is empty\n  sql     Query\n  help    This\n\nOptions:\n  -h\n";
        assert_eq!(commands(overview), ["init", "sql"]);
    }
}
