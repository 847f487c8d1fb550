//! The data of the yardstick: a generated run, its lake, and the peers' files.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use rollbook_lake::Lake;
use rollbook_query::build::{BuildOptions, run_build};
use rollbook_query::ingest::{IngestOptions, import};
use rollbook_query::recipe::{DeriveOptions, find_recipe, run_credit, run_reward};
use rollbook_query::{Session, SessionOptions};
use rollbook_testing::generate::write::{Format, write_tables};
use rollbook_testing::generate::{Generator, Options, Size};

use super::peers_script;
use crate::append::options;
use crate::generate::note;

/// Tokens of a row in the prepared build: more than any generated context has.
const ROW_TOKENS: u32 = 160_000;

/// Makes what is missing.
pub(super) fn prepare(data: &Path, size: Size, python: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(data)?;
    check_size(data, size)?;
    once(data, "run", |out| write_run(out, size, Format::Parquet))?;
    // JSON lines of more than M/100 would fill the disk, and the import's cost is linear.
    let lines = if matches!(size, Size::S) { Size::S } else { Size::MHundredth };
    once(data, "jsonl", |out| write_run(out, lines, Format::Jsonl))?;
    once(data, "peers", |_| peers(data, python))?;
    once(data, "lake", |out| block_on(fill(out, &data.join("run"))))?;
    once(data, "million-lake", |out| block_on(fill_million(out, &data.join("million"))))
}

/// A folder holds one size only: its parts would not fit together.
fn check_size(data: &Path, size: Size) -> Result<(), Box<dyn Error>> {
    let (mark, name) = (data.join("size"), format!("{size}"));
    match std::fs::read_to_string(&mark) {
        Ok(known) if known == name => Ok(()),
        Ok(known) => Err(format!("{} holds data of size {known}: give another folder", data.display()).into()),
        Err(_) => Ok(std::fs::write(mark, name)?),
    }
}

/// Makes a part unless it was made whole before.
fn once(data: &Path, name: &str, make: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let mark = data.join(format!("{name}.done"));
    if mark.exists() {
        return Ok(());
    }
    note(&format_args!("preparing {name}"));
    let folder = data.join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    make(&folder)?;
    Ok(std::fs::write(mark, "")?)
}

fn write_run(out: &Path, size: Size, format: Format) -> Result<(), Box<dyn Error>> {
    write_tables(out, Generator::new(Options::of(size)), format)?;
    Ok(())
}

fn peers(data: &Path, python: &Path) -> Result<(), Box<dyn Error>> {
    let status = Command::new(python).arg(peers_script()).arg("build").arg(data).status()?;
    if status.success() {
        Ok(())
    } else {
        Err("the peers' files could not be made; is every package installed?".into())
    }
}

fn block_on(work: impl Future<Output = Result<(), Box<dyn Error>>>) -> Result<(), Box<dyn Error>> {
    tokio::runtime::Runtime::new()?.block_on(work)
}

async fn import_into(lake: &Path, source: &Path) -> Result<Lake, Box<dyn Error>> {
    let lake = Lake::init(&lake.display().to_string(), options()).await?;
    let importer = rollbook_import::importer("tables").ok_or("no importer is called tables")?;
    let sources: [PathBuf; 1] = [source.to_owned()];
    import(&lake, importer, &sources, &IngestOptions::default(), &|_| ()).await?;
    Ok(lake)
}

/// The run with a reward, a credit and a build over it.
async fn fill(out: &Path, source: &Path) -> Result<(), Box<dyn Error>> {
    let lake = import_into(out, source).await?;
    let session = || Session::open(&lake, None, SessionOptions::default());
    let parameters = BTreeMap::from([("verifier".to_owned(), "tests".to_owned())]);
    let reward = DeriveOptions { parameters, ..DeriveOptions::default() };
    run_reward(&session().await?, &find_recipe("verifier_value")?, &reward).await?;
    run_credit(&session().await?, &find_recipe("grpo")?, "verifier_value", &DeriveOptions::default()).await?;
    let build = BuildOptions { accept_assumed: true, ..BuildOptions::new(ROW_TOKENS) };
    run_build(&session().await?, &find_recipe("merged")?, "grpo", &build).await?;
    Ok(())
}

async fn fill_million(out: &Path, source: &Path) -> Result<(), Box<dyn Error>> {
    import_into(out, source).await?;
    Ok(())
}
