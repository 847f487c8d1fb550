//! The lake of one test, which goes with it.

use std::fs::File;
use std::io::{BufWriter, Write};

use rollbook_lake::{Lake, LakeOptions};
use tempfile::TempDir;

use crate::error::{Error, ErrorKind, Result};
use crate::ingest::{IngestOptions, import};
use crate::recipe::testing::block::TestBlock;
use crate::recipe::testing::given::complete;
use crate::session::{Session, SessionOptions};

/// Bytes that a test may hold.
const MEMORY: usize = 256 << 20;

/// A lake in a temporary folder.
pub(super) struct Scratch {
    lake: Lake,
    folder: TempDir,
}

impl Scratch {
    /// Makes a lake that holds the rows of a test, brought in as an import would bring them.
    pub(super) async fn new(block: &TestBlock, options: &LakeOptions) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(|source| no_folder(&source))?;
        let place = folder.path().join("lake");
        let options = LakeOptions { env: std::collections::BTreeMap::new(), ..options.clone() };
        let lake = Lake::init(&place.to_string_lossy(), options).await?;
        let tables = complete(&block.given);
        if tables.is_empty() {
            return Ok(Self { lake, folder });
        }
        let source = folder.path().join("given");
        std::fs::create_dir(&source).map_err(|source| no_folder(&source))?;
        for (table, rows) in tables {
            let file = File::create(source.join(format!("{table}.jsonl"))).map_err(|source| no_folder(&source))?;
            let mut file = BufWriter::new(file);
            for row in rows {
                writeln!(file, "{}", serde_json::Value::Object(row)).map_err(|source| no_folder(&source))?;
            }
            file.flush().map_err(|source| no_folder(&source))?;
        }
        let importer =
            rollbook_import::importer("tables").ok_or_else(|| Error::corrupt("the exchange format has no importer"))?;
        let options = IngestOptions { memory_limit: MEMORY, ..IngestOptions::default() };
        let report = import(&lake, importer, &[source], &options, &|_| {}).await?;
        if let Some(reject) = report.rejects.first() {
            let field = reject.field.as_deref().unwrap_or("a row");
            return Err(Error::invalid(format!("{}, {field}: {}", reject.file, reject.reason)));
        }
        if let Some(note) = report.notes.iter().find(|note| note.contains("unknown column")) {
            return Err(Error::invalid(note.clone()));
        }
        Ok(Self { lake, folder })
    }

    /// Opens the lake.
    pub(super) async fn session(&self) -> Result<Session> {
        let spill_dir = Some(self.folder.path().to_owned());
        Session::open(&self.lake, None, SessionOptions { memory_limit: MEMORY, threads: 2, spill_dir }).await
    }
}

fn no_folder(source: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("a test needs a temporary folder: {source}"))
}
