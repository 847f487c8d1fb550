//! The version of the format, and what is read.

use crate::{Error, ErrorKind, Result};

/// Version of the lake format that this program writes.
pub const FORMAT_VERSION: u32 = 1;

/// Refuses a format this program cannot read, naming the remedy.
///
/// ```
/// assert!(rollbook_schema::check_version(1).is_ok());
/// assert!(rollbook_schema::check_version(2).is_err());
/// ```
pub fn check_version(version: u32) -> Result<()> {
    match version {
        1..=FORMAT_VERSION => Ok(()),
        0 => Err(Error::new(ErrorKind::Invalid, "format version 0 does not exist")),
        newer => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the lake has format version {newer}, this program reads up to {FORMAT_VERSION}: use a newer rollbook"
            ),
        )),
    }
}
