//! Tasks of which only some run at a time.

use std::sync::Arc;

use rollbook_query::{Error, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Lets so many tasks run at once.
pub(crate) struct Turns {
    places: Arc<Semaphore>,
}

impl Turns {
    pub(crate) fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places.max(1))) }
    }

    /// Starts a task as soon as there is a place for it.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> JoinHandle<Result<T>> {
        let places = Arc::clone(&self.places);
        tokio::spawn(async move {
            let _place = places.acquire_owned().await;
            task.await
        })
    }
}

/// Waits for a task.
pub(crate) async fn ended<T>(task: JoinHandle<Result<T>>) -> Result<T> {
    task.await.unwrap_or_else(|error| Err(Error::corrupt(format!("a task ended early: {error}"))))
}
