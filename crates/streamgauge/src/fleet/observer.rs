use std::time::Duration;

use viewer::{Report, RequestTimes};

use super::Plan;
use crate::progress::Progress;
use crate::record::{Folder, Tick};
use crate::summary::Sum;

/// Receives the results of a run while it goes on.
pub trait Observer {
    /// A period has passed.
    fn tick(&mut self, tick: &Tick);
    /// A viewer has left.
    ///
    /// # Errors
    /// The report cannot be recorded. The run ends.
    fn report(&mut self, report: Report) -> anyhow::Result<()>;
    /// All viewers of this process are connected, or have failed to connect. Only plans whose
    /// viewers start together have this moment.
    fn connected(&mut self) {}
    /// Takes the times of viewers' requests after the viewers have left: all those of one loop or
    /// process in one call.
    fn requests(&mut self, times: &RequestTimes);
}

/// An observer that adds up reports, shows progress and keeps records.
#[derive(Debug)]
pub struct Recorder {
    folder: Option<Folder>,
    progress: Progress,
    sum: Sum,
    /// Time between two batches.
    interval: Duration,
    /// Why the records are incomplete.
    failed: Option<anyhow::Error>,
}

impl Recorder {
    /// Makes a recorder for a run whose viewers should get `wanted` seconds of media.
    pub fn new(folder: Option<Folder>, plan: &Plan, wanted: f64, quiet: bool) -> Self {
        let progress = Progress::new(plan.end(), quiet);
        let sum = Sum::new(wanted, plan.viewers());
        Self { folder, progress, sum, interval: plan.interval, failed: None }
    }

    /// Lets the sums count viewers that get so many Mbit/s as served.
    pub fn needing(mut self, bit_rate: f64) -> Self {
        self.sum = self.sum.needing(bit_rate);
        self
    }

    /// Ends the progress display; returns the records and the sums.
    pub fn finish(self) -> (Option<Folder>, Sum) {
        self.progress.finish();
        (self.folder, self.sum)
    }
}

impl Observer for Recorder {
    fn tick(&mut self, tick: &Tick) {
        self.progress.tick(tick);
        if let Some(folder) = &mut self.folder
            && let Err(error) = folder.tick(tick)
        {
            self.failed.get_or_insert(error);
        }
    }

    fn report(&mut self, report: Report) -> anyhow::Result<()> {
        let due = self.interval.as_secs_f64() * f64::from(report.batch);
        self.sum.add(&report, report.joined - due);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.folder.as_mut().map_or(Ok(()), |folder| folder.viewer(&report))
    }

    fn requests(&mut self, times: &RequestTimes) {
        self.sum.requests(times);
    }
}
