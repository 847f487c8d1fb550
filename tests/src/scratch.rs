//! Runs the built `rollbook`, and the tests' Python, in a scratch folder and with a known environment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rollbook_testing::s3::SeaweedFs;
use serde_json::Value;
use tempfile::TempDir;

/// What a command left behind.
#[derive(Debug)]
pub struct Ran {
    /// Its exit status; none when a signal ended it.
    pub status: Option<i32>,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it said beside that.
    pub stderr: String,
    line: String,
}

#[expect(clippy::return_self_not_must_use, reason = "the assertion is the use")]
impl Ran {
    fn new(line: String, output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { status: output.status.code(), stdout: output.stdout, stderr, line }
    }

    /// The printed text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("stdout is text")
    }

    /// The printed JSON document.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The same, if it ended with this status.
    pub fn ended(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{}\n{}\n{}", self.line, self.stderr, self.head());
        self
    }

    /// The same, if its errors say all of this.
    pub fn saying(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "{}: {part:?} is not said in:\n{}", self.line, self.stderr);
        }
        self
    }

    fn head(&self) -> String {
        String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(2_000)]).into_owned()
    }
}

/// A scratch folder, gone at the end of the test. Relative paths of commands are below it.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    environment: BTreeMap<String, String>,
}

/// An S3 server with a bucket, and where lakes can lie in it.
#[derive(Debug)]
pub struct S3 {
    /// The server.
    pub server: SeaweedFs,
}

impl S3 {
    /// Starts a server with the bucket `lakes`.
    pub fn start() -> Self {
        let server = SeaweedFs::start().unwrap_or_else(|error| panic!("{error}"));
        server.create_bucket("lakes").unwrap();
        Self { server }
    }
}

/// Runs a program and leaves at once: threads of libraries that are still there when the interpreter ends can abort it after all is said.
const RUN_AND_LEAVE: &str = "import os, runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); \
    sys.stdout.flush(); sys.stderr.flush(); os._exit(0)";

impl Scratch {
    /// A scratch folder whose commands know of no S3 server.
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), environment: BTreeMap::new() }
    }

    /// A scratch folder whose commands have these `AWS_*` variables.
    pub fn with(environment: BTreeMap<String, String>) -> Self {
        Self { environment, ..Self::new() }
    }

    /// A path in the folder.
    pub fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// Writes a file, and the folders above it.
    pub fn write(&self, below: &str, content: impl AsRef<[u8]>) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Reads a file as text.
    pub fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap()
    }

    /// A command of `rollbook`, not yet started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.clean(&rollbook());
        command.args(arguments);
        command
    }

    /// Runs `rollbook` to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().unwrap();
        Ran::new(format!("rollbook {}", arguments.join(" ")), output)
    }

    /// Runs `rollbook`, which must succeed.
    pub fn ok(&self, arguments: &[&str]) -> Ran {
        self.run(arguments).ended(0)
    }

    /// The rows of a query, one JSON object each.
    pub fn rows(&self, lake: &str, sql: &str) -> Vec<Value> {
        let ran = self.ok(&["sql", "--lake", lake, "--format", "ndjson", "-c", sql]);
        ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The values of a query's only row, in the order of its columns.
    pub fn row(&self, lake: &str, sql: &str) -> Vec<Value> {
        let mut rows = self.rows(lake, sql);
        assert_eq!(rows.len(), 1, "{sql}");
        let Some(Value::Object(row)) = rows.pop() else { panic!("{sql} gave no row") };
        row.into_iter().map(|(_, value)| value).collect()
    }

    /// The number that a query gives.
    pub fn number(&self, lake: &str, sql: &str) -> i64 {
        let row = self.row(lake, sql);
        row[0].as_i64().unwrap_or_else(|| panic!("{sql} gave {row:?}"))
    }

    /// The newest snapshot's number.
    pub fn snapshot(&self, lake: &str) -> i64 {
        self.status(lake)["snapshot"].as_i64().unwrap()
    }

    /// What `rollbook status` says.
    pub fn status(&self, lake: &str) -> Value {
        self.ok(&["status", "--lake", lake, "--format", "json"]).json()
    }

    /// Runs a program of `tests/python`, which must succeed, and reads the JSON it prints.
    pub fn python(&self, program: &str, arguments: &[&str]) -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(program);
        let python = std::env::var_os("ROLLBOOK_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
        let output = self.clean(&python).args(["-c", RUN_AND_LEAVE]).arg(path).args(arguments).output().unwrap();
        Ran::new(format!("{program} {}", arguments.join(" ")), output).ended(0).json()
    }

    /// Runs `rollbook`, and says how much memory it held at most.
    pub fn measured(&self, arguments: &[&str]) -> (Ran, i64) {
        let program = rollbook().display().to_string();
        let told = self.python("peak_memory.py", &[&[program.as_str()], arguments].concat());
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        let ran = Ran {
            status: told["status"].as_i64().and_then(|status| i32::try_from(status).ok()),
            stdout: text("stdout").into_bytes(),
            stderr: text("stderr"),
            line: format!("rollbook {}", arguments.join(" ")),
        };
        (ran, told["peak_bytes"].as_i64().unwrap())
    }

    fn clean(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("AWS_") || name == "ROLLBOOK_LAKE" {
                command.env_remove(&*name);
            }
        }
        command.envs(&self.environment);
        command
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The binary under test: `ROLLBOOK_BIN`, else the one that the same build put beside the tests.
fn rollbook() -> PathBuf {
    if let Some(path) = std::env::var_os("ROLLBOOK_BIN") {
        return PathBuf::from(path);
    }
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().and_then(Path::parent).unwrap().join(format!("rollbook{}", std::env::consts::EXE_SUFFIX));
    assert!(path.is_file(), "there is no {}: cargo build --workspace --bins, or set ROLLBOOK_BIN", path.display());
    path
}
