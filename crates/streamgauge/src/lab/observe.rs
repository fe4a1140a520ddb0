//! The meter of a trial: a recording every second, and the exact start and end of the load.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use procfs::process::Process;
use procfs::{CurrentSI, KernelStats};

use super::machine::cpus;
use super::metrics::{Observed, Through};
use crate::meter::args::Files;
use crate::meter::{Meter, Options, Recording, Sample};

/// A recording that is written while it is made: meter.csv in study B's format, and meter.jsonl.
#[derive(Debug)]
pub(super) struct Recorded {
    recording: Option<Recording>,
    samples: Arc<Mutex<Vec<Sample>>>,
    began: Instant,
}

impl Recorded {
    pub(super) fn start(options: &Options, csv: &Path) -> anyhow::Result<Self> {
        let mut files = Files::open(Some(csv), false)?;
        let meter = Meter::start(options)?;
        let began = meter.began();
        let samples = Arc::new(Mutex::new(Vec::new()));
        let kept = samples.clone();
        let recording = Recording::start(
            meter,
            Duration::from_secs(1),
            Box::new(move |sample| {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(sample.clone());
                files.write(sample)
            }),
        )?;
        Ok(Self { recording: Some(recording), samples, began })
    }

    /// Ends the recording; returns its samples.
    pub(super) fn stop(mut self) -> anyhow::Result<Vec<Sample>> {
        if let Some(recording) = self.recording.take() {
            recording.stop()?;
        }
        Ok(std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Some(recording) = self.recording.take() {
            // The trial has failed for another reason.
            let _ = recording.stop();
        }
    }
}

/// Measures from the start of the load to its end.
#[derive(Debug)]
pub(super) struct Span {
    meter: Meter,
    before: Sample,
    /// The used processors; `None` for all.
    cpus: Option<Vec<usize>>,
    busy: f64,
    own: f64,
    publisher: Option<(u32, f64)>,
}

impl Span {
    /// Starts measuring. `publisher` is a running process that belongs to the load.
    pub(super) fn begin(
        options: &Options,
        recorded: &Recorded,
        lists: [Option<&str>; 2],
        publisher: Option<u32>,
    ) -> anyhow::Result<Self> {
        let both = lists[0].zip(lists[1]).and_then(|(server, load)| {
            let mut both: Vec<usize> = cpus(server)?.into_iter().chain(cpus(load)?).collect();
            both.sort_unstable();
            both.dedup();
            Some(both)
        });
        let mut meter = Meter::start(options)?;
        let mut sample = meter.sample()?;
        sample.at += offset(recorded, &meter);
        Ok(Self {
            before: sample,
            busy: busy(both.as_deref())?.0,
            cpus: both,
            own: own_cpu(),
            publisher: publisher.map(|pid| (pid, cpu_of(pid))),
            meter,
        })
    }

    /// The server's processes at the start.
    pub(super) fn processes(&self) -> Vec<i32> {
        self.meter.initial().iter().map(|usage| usage.pid).collect()
    }

    /// Ends measuring. `background` is a process of the load that was started in the meantime.
    pub(super) fn end(
        mut self,
        recorded: &Recorded,
        background: Option<u32>,
    ) -> anyhow::Result<Observed> {
        let mut after = self.meter.sample()?;
        after.at += offset(recorded, &self.meter);
        let (busy, processors) = busy(self.cpus.as_deref())?;
        let publisher = self.publisher.map_or(0.0, |(pid, before)| cpu_of(pid) - before);
        Ok(Observed {
            before: Some(self.before),
            after: Some(after),
            samples: Vec::new(),
            load_cpu: own_cpu() - self.own + publisher.max(0.0) + background.map_or(0.0, cpu_of),
            busy: busy - self.busy,
            processors,
            through: Through::default(),
        })
    }
}

/// Added to a meter's times, it makes them times of the recording.
fn offset(recorded: &Recorded, meter: &Meter) -> f64 {
    meter.began().saturating_duration_since(recorded.began).as_secs_f64()
}

fn ticks() -> f64 {
    procfs::ticks_per_second() as f64
}

/// Processor time of this process and of the children that it has waited for. Its meter belongs to
/// the load.
fn own_cpu() -> f64 {
    cpu_of(std::process::id())
}

/// Processor time of a process and of the children that it has waited for.
fn cpu_of(pid: u32) -> f64 {
    let stat = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()?.stat().ok());
    stat.map_or(0.0, |stat| {
        let children = (stat.cutime + stat.cstime).max(0) as f64;
        ((stat.utime + stat.stime) as f64 + children) / ticks()
    })
}

/// How many seconds processors were busy since the machine started, and how many processors.
fn busy(cpus: Option<&[usize]>) -> anyhow::Result<(f64, u32)> {
    let stats = KernelStats::current()?;
    let used = |index: usize| cpus.is_none_or(|cpus| cpus.contains(&index));
    let times = stats.cpu_time.iter().enumerate().filter(|(index, _)| used(*index));
    let (mut busy, mut count) = (0, 0);
    for (_, time) in times {
        busy += time.user
            + time.nice
            + time.system
            + time.irq.unwrap_or_default()
            + time.softirq.unwrap_or_default()
            + time.steal.unwrap_or_default();
        count += 1;
    }
    Ok((busy as f64 / ticks(), count))
}
