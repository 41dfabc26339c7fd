//! How far an import, a pull or a verification is, for somebody at a terminal.

use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use turnjail_images::Progress;

/// A bar for each layer; nothing where nobody looks.
pub struct Bars {
    bar: Mutex<ProgressBar>,
    hidden: bool,
}

impl Bars {
    /// Hidden with `--json`, and by itself where standard error is no terminal.
    pub fn new(json: bool) -> Self {
        Self { bar: Mutex::new(ProgressBar::hidden()), hidden: json }
    }

    /// A bar of its own for something else that has so many bytes.
    pub fn start(&self, what: String, bytes: u64) {
        let target =
            if self.hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(bytes), target);
        let template = "{msg:24} {bar:24} {bytes}/{total_bytes} {bytes_per_sec}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        if let Ok(mut current) = self.bar.lock() {
            current.finish_and_clear();
            *current = bar;
        }
    }

    /// So many bytes more.
    pub fn more(&self, bytes: u64) {
        if let Ok(bar) = self.bar.lock() {
            bar.inc(bytes);
        }
    }

    /// So many bytes of so many.
    pub fn at(&self, bytes: u64, of: u64) {
        if let Ok(bar) = self.bar.lock() {
            bar.set_length(of);
            bar.set_position(bytes);
        }
    }

    /// The end of all.
    pub fn finish(&self) {
        if let Ok(bar) = self.bar.lock() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bars {
    fn layer(&self, number: usize, of: usize, bytes: u64) {
        self.start(format!("unpacking layer {number}/{of}"), bytes);
    }

    fn advance(&self, bytes: u64) {
        self.more(bytes);
    }
}
