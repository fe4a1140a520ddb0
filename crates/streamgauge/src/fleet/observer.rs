use std::time::Duration;

use viewer::{Report, RequestTimes};

use super::Plan;
use crate::progress::Progress;
use crate::record::{Folder, Tick};
use crate::summary::Sum;

/// What a run tells while it goes on.
pub trait Observer {
    /// A period has gone by.
    fn tick(&mut self, tick: &Tick);
    /// A viewer has left.
    ///
    /// # Errors
    /// It cannot be recorded; the run ends.
    fn report(&mut self, report: Report) -> anyhow::Result<()>;
    /// How long requests of viewers took, once they are over; those of a loop or a process at a time.
    fn requests(&mut self, times: &RequestTimes);
}

/// An observer that adds reports up, shows progress and keeps records.
#[derive(Debug)]
pub struct Recorder {
    folder: Option<Folder>,
    progress: Progress,
    sum: Sum,
    /// Between two batches.
    interval: Duration,
    /// Why the records are not whole.
    failed: Option<anyhow::Error>,
}

impl Recorder {
    /// Of a run whose viewers should get `wanted` seconds of media.
    pub fn new(folder: Option<Folder>, plan: &Plan, wanted: f64, quiet: bool) -> Self {
        let progress = Progress::new(plan.end(), quiet);
        let sum = Sum::new(wanted, plan.viewers());
        Self { folder, progress, sum, interval: plan.interval, failed: None }
    }

    /// Ends the progress; what was kept and added up.
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
