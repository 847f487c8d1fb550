//! Progress on stderr, only where a person looks on.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rollbook_query::ingest::Progress;

/// A bar for an import, silent where stderr is no terminal.
pub(crate) struct ImportBar {
    bar: ProgressBar,
}

impl ImportBar {
    /// Starts a bar.
    pub(crate) fn start() -> Self {
        let bar = ProgressBar::new(0);
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) =
            ProgressStyle::with_template("{msg:<10} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Shows where the import is.
    pub(crate) fn show(&self, progress: Progress) {
        match progress {
            Progress::Reading { done, total } => {
                self.bar.set_message("reading");
                self.bar.set_length(total);
                self.bar.set_position(done);
            }
            Progress::Writing { rows } => {
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                    self.bar.set_style(style);
                }
                self.bar.set_message(format!("writing, {rows} rows"));
            }
            Progress::Committing => self.bar.set_message("publishing"),
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
