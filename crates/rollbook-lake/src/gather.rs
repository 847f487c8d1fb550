//! Runs requests side by side, a bounded number at a time.

use futures::{StreamExt, TryStreamExt};

use crate::error::Result;

/// Runs all futures, at most `at_once` of them together, and returns their results in order.
///
/// It takes them made, not a closure that makes them: a closure over borrowed items held across an await keeps the
/// whole future from being `Send`.
pub(crate) async fn gather<T>(futures: Vec<impl Future<Output = Result<T>>>, at_once: usize) -> Result<Vec<T>> {
    futures::stream::iter(futures).buffered(at_once).try_collect().await
}
