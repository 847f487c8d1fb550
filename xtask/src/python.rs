//! The tests' Python: packages pinned in tests/python/requirements.txt, installed below the target directory.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rollbook_schema::digest::bytes_digest;

use crate::{Outcome, process};

/// A Python that can import the pinned packages.
pub(crate) struct Python {
    /// The interpreter.
    pub(crate) interpreter: PathBuf,
    /// Where the packages' own programs lie.
    programs: PathBuf,
    /// Folder to put on `PYTHONPATH`; none in a venv.
    packages: Option<PathBuf>,
}

impl Python {
    /// Returns a program that a package brought.
    pub(crate) fn program(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.programs.join(format!("{name}{}", env::consts::EXE_SUFFIX));
        if path.exists() { Ok(path) } else { Err(format!("the Python packages brought no program {name}").into()) }
    }

    /// Returns the `PYTHONPATH` the tests need, if any.
    pub(crate) fn path(&self) -> Outcome<Option<OsString>> {
        let Some(packages) = &self.packages else {
            return Ok(None);
        };
        let inherited = env::var_os("PYTHONPATH").unwrap_or_default();
        let folders = [packages.clone()].into_iter().chain(env::split_paths(&inherited));
        Ok(Some(env::join_paths(folders.filter(|folder| !folder.as_os_str().is_empty()))?))
    }
}

/// Installs the packages unless they are there.
pub(crate) fn install() -> Outcome<Python> {
    let requirements = process::root().join("tests/python/requirements.txt");
    let text = fs::read(&requirements).map_err(|error| format!("{}: {error}", requirements.display()))?;
    let base = base_interpreter()?;
    let version = process::read(Command::new(&base).args(["-c", "import sys; print(sys.version, sys.prefix)"]))?;
    let key = bytes_digest(&[text.as_slice(), version.as_bytes()].concat());
    let folder =
        process::target_dir()?.join("python").join(key.trim_start_matches("sha256:").get(..16).unwrap_or(&key));
    let complete = folder.join("complete");
    if let Ok(how) = fs::read_to_string(&complete) {
        return Ok(layout(&base, &folder, how.trim() == "venv"));
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let has_venv = fresh_venv(&base, &folder);
    let python = layout(&base, &folder, has_venv);
    let mut pip = Command::new(&python.interpreter);
    pip.env("PIP_ROOT_USER_ACTION", "ignore")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(&requirements);
    if let Some(packages) = &python.packages {
        pip.arg("--target").arg(packages);
    }
    println!("installing the tests' Python packages");
    process::run(&mut pip)?;
    fs::write(&complete, if has_venv { "venv" } else { "target" })?;
    Ok(python)
}

fn base_interpreter() -> Outcome<PathBuf> {
    ["python3", "python"]
        .into_iter()
        .find(|name| {
            process::succeeds(Command::new(name).args(["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]))
        })
        .map(PathBuf::from)
        .ok_or_else(|| "the tests need Python 3.10 or newer as python3".into())
}

/// Makes a venv with pip; some systems ship Python without the parts that takes.
fn fresh_venv(base: &Path, folder: &Path) -> bool {
    let is_made = process::succeeds(Command::new(base).args(["-m", "venv"]).arg(folder))
        && process::succeeds(Command::new(layout(base, folder, true).interpreter).args(["-m", "pip", "--version"]));
    if !is_made {
        // What a failed attempt leaves must not be taken for a venv; a missing folder is what we want.
        fs::remove_dir_all(folder).ok();
    }
    is_made
}

fn layout(base: &Path, folder: &Path, is_venv: bool) -> Python {
    let programs = folder.join(if cfg!(windows) && is_venv { "Scripts" } else { "bin" });
    if is_venv {
        let interpreter = programs.join(format!("python{}", env::consts::EXE_SUFFIX));
        Python { interpreter, programs, packages: None }
    } else {
        Python { interpreter: base.to_path_buf(), programs, packages: Some(folder.to_path_buf()) }
    }
}
