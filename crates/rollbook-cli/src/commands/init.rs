//! `rollbook init`: makes a lake.

use std::process::ExitCode;

use clap::Args;
use rollbook_lake::Lake;

use crate::error::{CommandError, Result};
use crate::lake::options;
use crate::output::{line, plain};

/// Make a lake in a folder or at an s3 URL
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook init my-lake
  AWS_ENDPOINT_URL=http://127.0.0.1:8333 AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… rollbook init s3://lake/team-a

The store must honour create-if-absent (PUT with If-None-Match: *): init proves it with a probe object and refuses otherwise.")]
pub(crate) struct Arguments {
    /// Folder or an s3 URL
    #[arg(value_name = "LAKE", env = "ROLLBOOK_LAKE")]
    lake: Option<String>,
    /// The same, as the other commands spell it
    #[arg(long = "lake", value_name = "LAKE", conflicts_with = "lake", hide = true)]
    named: Option<String>,
}

/// Makes the lake.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let url = arguments
        .named
        .or(arguments.lake)
        .ok_or_else(|| CommandError::usage("which lake?").hint("rollbook init my-lake"))?;
    let lake = Lake::init(&url, options()).await?;
    line(&format!(
        "lake {} at {}, {} tables, snapshot 0",
        lake.id(),
        plain(lake.url()),
        rollbook_schema::tables().len()
    ))?;
    Ok(ExitCode::SUCCESS)
}
