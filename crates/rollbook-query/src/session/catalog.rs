//! The schema that holds a session's tables: those that listings show, and hidden ones that statements may still name.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, TableProvider};
use datafusion::common::Result;

/// Tables that exist by name alone; each is made when a statement names it.
#[async_trait]
pub trait HiddenTables: std::fmt::Debug + Send + Sync {
    /// Whether there is a table of this name.
    fn has(&self, name: &str) -> bool;

    /// Makes the table of this name.
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>>;
}

/// A schema with hidden tables beside its own.
#[derive(Debug, Default)]
pub(super) struct LakeSchema {
    shown: MemorySchemaProvider,
    hidden: Mutex<Vec<Arc<dyn HiddenTables>>>,
}

impl LakeSchema {
    pub(super) fn hide(&self, tables: Arc<dyn HiddenTables>) {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner).push(tables);
    }

    fn hidden(&self, name: &str) -> Option<Arc<dyn HiddenTables>> {
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        hidden.iter().find(|tables| tables.has(name)).map(Arc::clone)
    }
}

#[async_trait]
impl SchemaProvider for LakeSchema {
    fn table_names(&self) -> Vec<String> {
        self.shown.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.shown.table(name).await? {
            Some(table) => Ok(Some(table)),
            None => match self.hidden(name) {
                Some(tables) => tables.table(name).await,
                None => Ok(None),
            },
        }
    }

    fn register_table(&self, name: String, table: Arc<dyn TableProvider>) -> Result<Option<Arc<dyn TableProvider>>> {
        self.shown.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.shown.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.shown.table_exist(name) || self.hidden(name).is_some()
    }
}
