//! `cargo xtask ci`: every check, in the order in which they are cheapest to fail.

use std::time::Instant;

use crate::{Outcome, docs, process, test, tidy};

type Step = (&'static str, fn() -> Outcome);

const STEPS: &[Step] = &[
    ("fmt", || process::run(process::cargo().args(["fmt", "--all", "--check"]))),
    ("tidy", tidy::run),
    ("clippy", || {
        process::run(process::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    }),
    // Builds what the tests run, and needs none of them.
    ("docs", || docs::run(true)),
    ("test", || test::run(&[])),
    ("rustdoc", || {
        let mut doc = process::cargo();
        doc.args(["doc", "--workspace", "--no-deps", "--document-private-items"]);
        process::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    }),
];

pub(crate) fn run() -> Outcome {
    let started = Instant::now();
    let mut report = Vec::new();
    for (name, step) in STEPS {
        println!("== {name}");
        let began = Instant::now();
        let outcome = step();
        let seconds = began.elapsed().as_secs_f64();
        report.push(format!("{name:<8} {seconds:>8.1} s{}", if outcome.is_ok() { "" } else { "  FAILED" }));
        if let Err(error) = outcome {
            println!("{}", report.join("\n"));
            return Err(format!("{name}: {error}").into());
        }
    }
    report.push(format!("{:<8} {:>8.1} s", "all", started.elapsed().as_secs_f64()));
    println!("{}", report.join("\n"));
    Ok(())
}
