//! The list of importers, in the order of the documentation.

use crate::importer::Importer;
use crate::openai_log::OpenaiLog;
use crate::tables::Tables;

/// Returns every importer.
pub fn importers() -> &'static [&'static dyn Importer] {
    &[&Tables, &OpenaiLog]
}

/// Returns the importer of this name.
pub fn importer(name: &str) -> Option<&'static dyn Importer> {
    importers().iter().copied().find(|importer| importer.name() == name)
}
