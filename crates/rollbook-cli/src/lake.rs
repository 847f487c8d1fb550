//! Opens lakes for commands: the URL from `--lake` or the environment, the clock, the writer's name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use rollbook_lake::{Lake, LakeOptions};
use rollbook_query::{Session, SessionOptions};

use crate::error::Result;

/// The lake to work on.
#[derive(Debug, Clone, Args)]
pub(crate) struct LakeArgs {
    /// Lake: a folder or an s3 URL (AWS_* variables hold keys and endpoint)
    #[arg(long, env = "ROLLBOOK_LAKE", value_name = "LAKE")]
    pub(crate) lake: String,
}

/// The lake to read, and at which snapshot.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) lake: LakeArgs,
    /// Snapshot to read; the newest when left out
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) at: Option<u64>,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

/// How much memory a statement may hold.
#[derive(Debug, Clone, Args)]
pub(crate) struct MemoryArgs {
    /// Megabytes that sorts, groups and joins may hold; beyond, they spill to the temporary folder
    #[arg(long, value_name = "MB", default_value_t = 512, hide_short_help = true)]
    pub(crate) memory_limit: usize,
}

impl LakeArgs {
    /// Opens the lake.
    pub(crate) async fn open(&self) -> Result<Lake> {
        Ok(Lake::open(&self.lake, options()).await?)
    }
}

impl ReadArgs {
    /// Opens a session on the lake at the snapshot.
    pub(crate) async fn session(&self) -> Result<Session> {
        let lake = self.lake.open().await?;
        let session = Session::open(&lake, self.at, self.memory.options()).await?;
        // Every check is a table: SELECT * FROM audit('token/prefix').
        rollbook_audit::register(&session)?;
        Ok(session)
    }
}

impl MemoryArgs {
    /// The session's options.
    pub(crate) fn options(&self) -> SessionOptions {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        SessionOptions { memory_limit: self.memory_limit << 20, threads, spill_dir: None }
    }
}

/// Environment, clock and author for a lake.
pub(crate) fn options() -> LakeOptions {
    let env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name.starts_with("AWS_")).collect();
    let author = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "unknown".to_owned());
    LakeOptions { env, clock: Arc::new(now_us), author }
}

/// UTC microseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the command line is where time enters")]
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
