//! The lake's format as data: tables, columns, their Arrow and Delta types, and the frozen token digest.
//!
//! The source of truth is `schema/v1/<table>.json`, Delta's own schema JSON with a comment, a unit, the meaning of
//! null and a layer for each column. The files are embedded and parsed once; nothing here does I/O.
//!
//! ```text
//! layer      SQL, dump, importers    Parquet, Delta
//! both       yes                     yes
//! logical    yes                     no              rebuilt on read
//! physical   no                      yes             how prompts are stored
//! ```
//!
//! ```
//! let calls = rollbook_schema::table("calls").unwrap();
//! assert!(calls.logical().field_with_name("prompt_token_ids").is_ok());
//! assert!(calls.physical().field_with_name("prompt_suffix").is_ok());
//! ```

pub mod columns;
pub mod digest;
mod error;
mod parse;
mod table;
mod version;

pub use error::{Error, ErrorKind, Result};
pub use table::{Column, Layer, Table, table, tables};
pub use version::{FORMAT_VERSION, check_version};
