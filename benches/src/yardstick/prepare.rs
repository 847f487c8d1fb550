//! The data of the yardstick: a generated run, its lake, and the peers' files.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use rollbook_query::compact::{CompactOptions, compact};
use rollbook_testing::generate::write::{Format, write_live, write_tables};
use rollbook_testing::generate::{Generator, Options, Size};

use super::peers_script;
use super::phases::{build, derive, import_into, lake_at};
use crate::generate::note;

/// Rollouts under way at once where calls come in live order.
const IN_FLIGHT: usize = 64;
/// Calls that one import brings in live order.
const LIVE_CALLS: usize = 4_096;

/// Makes what is missing.
pub(super) fn prepare(data: &Path, size: Size, python: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(data)?;
    check_size(data, size)?;
    once(data, "run", |out| write_run(out, size, Format::Parquet))?;
    // JSON lines of more than M/100 would fill the disk, and the import's cost is linear.
    let lines = if matches!(size, Size::S) { Size::S } else { Size::MHundredth };
    once(data, "jsonl", |out| write_run(out, lines, Format::Jsonl))?;
    once(data, "live", |out| Ok(write_live(out, Generator::new(Options::of(lines)), IN_FLIGHT, LIVE_CALLS)?))?;
    once(data, "peers", |_| peers(data, python))?;
    once(data, "lake", |out| block_on(fill(out, &data.join("run"))))?;
    once(data, "live-lake", |out| block_on(fill_live(out, &data.join("live"))))?;
    once(data, "million-lake", |out| block_on(import_into(out, &data.join("million"))))
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

/// The run with a reward, a credit and a build over it.
async fn fill(out: &Path, source: &Path) -> Result<(), Box<dyn Error>> {
    import_into(out, source).await?;
    derive(out).await?;
    build(out).await
}

/// The same calls as they arrived, one import after another, then compacted.
async fn fill_live(out: &Path, source: &Path) -> Result<(), Box<dyn Error>> {
    let mut pieces: Vec<_> =
        std::fs::read_dir(source)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    pieces.sort();
    for piece in pieces {
        import_into(out, &piece).await?;
    }
    compact(&lake_at(out).await?, &CompactOptions::default()).await?;
    Ok(())
}
