//! Progress on standard error: a bar on a terminal; of a run, a line a rung elsewhere.

use api::{RunEvent, Target};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;

/// A bar for reading many files; shown on a terminal only.
pub(crate) fn files_bar(files: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(files as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:28} {pos}/{len} files · {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// A bar for hashing many bytes; shown on a terminal only.
pub(crate) fn bytes_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) =
        ProgressStyle::with_template("{bar:28} {bytes}/{total_bytes} · {bytes_per_sec} · {eta} left")
    {
        bar.set_style(style);
    }
    bar
}

/// Where runs are followed, one or several at once.
pub(crate) struct Board {
    bars: MultiProgress,
    quiet: bool,
    several: bool,
}

impl Board {
    pub(crate) fn new(quiet: bool, several: bool) -> Self {
        let place = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Self { bars: MultiProgress::with_draw_target(place), quiet, several }
    }

    /// Follows the run on one target.
    pub(crate) fn follow(&self, target: &Target) -> Progress {
        let bar = self.bars.add(ProgressBar::no_length());
        let template = "{bar:28} {pos}/{len} trials · {elapsed} · {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let label = if self.several { format!("{target}: ") } else { String::new() };
        Progress {
            bar,
            label,
            quiet: self.quiet,
            left: None,
            recall: BTreeMap::new(),
            distance: BTreeMap::new(),
        }
    }
}

/// Follows one run.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Before every line, where several runs are followed.
    label: String,
    quiet: bool,
    /// Seconds left at the pace so far; None before there is a pace.
    left: Option<f64>,
    /// Last recall of each arm of the rung in progress.
    recall: BTreeMap<String, String>,
    /// Largest distance of each arm's first logits from the oracle's on that rung.
    distance: BTreeMap<String, f64>,
}

impl Progress {
    /// Shows one event.
    pub(crate) fn show(&mut self, event: RunEvent) {
        match event {
            RunEvent::Started { run, .. } => self.say(&format!("run {run}")),
            RunEvent::Planned { trials, reused } => {
                self.bar.set_length(trials as u64);
                if reused > 0 {
                    self.say(&format!("{reused} of {trials} trials are in the journal already"));
                }
            }
            RunEvent::Notice { line } => self.say(line.en()),
            RunEvent::Loaded { pack } => {
                self.say(&format!("{} · {} layers · {}", pack.name, pack.layers.len(), pack.compute_dtype));
            }
            RunEvent::TrialStarted { rung, sample, arm } => {
                let left = self.left.map_or_else(String::new, |left| format!("{left:.0} s left · "));
                self.bar.set_message(format!("{left}rung {rung}, sample {sample}, {arm}"));
            }
            RunEvent::TrialDone { arm, recall, done, remaining_s, outcome, .. } => {
                self.left = remaining_s;
                self.bar.set_position(done as u64);
                let (low, high) = (100.0 * recall.low, 100.0 * recall.high);
                let line = format!("{}/{} [{low:.1}, {high:.1}] %", recall.hits, recall.n);
                self.recall.insert(arm.to_string(), line);
                if let Some(fidelity) = outcome.fidelity {
                    let worst = self.distance.entry(arm.to_string()).or_default();
                    *worst = worst.max(fidelity.max_abs_logit_difference);
                }
            }
            RunEvent::RungDone { rung, .. } => {
                let mut distance = std::mem::take(&mut self.distance);
                for (arm, line) in std::mem::take(&mut self.recall) {
                    let apart = distance.remove(&arm).map_or_else(String::new, |worst| {
                        format!(" · first logits at most {worst:.3} from the oracle's")
                    });
                    self.say(&format!("rung {rung:>4}  {arm:<24} {line}{apart}"));
                }
            }
            RunEvent::TrialProgress { .. } | RunEvent::Memory { .. } => self.bar.tick(),
            RunEvent::Finished { .. } => self.bar.finish_and_clear(),
        }
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{}{line}", self.label));
        }
    }
}
