//! The verb `meter`: its arguments as written, and the recording that they mean.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::summary::Document;
use super::{HEADER, Meter, Options, Recording, Sample};
use crate::{Exit, units};

/// The system metrics daemon: the whole machine, single processes and the kernel's counters, once
/// a second until it is stopped (SIGINT, SIGTERM)
#[derive(Debug, Args)]
pub struct Arguments {
    /// Time from one sample to the next
    #[arg(long, value_name = "T", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// How long; by default until it is stopped
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    /// Processes to measure as well
    #[arg(long, value_name = "PID", num_args = 1.., value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,
    /// Also measure the processes that they have started
    #[arg(long, requires = "pid")]
    children: bool,
    /// The system's metrics as CSV, and everything as JSON lines in a file beside it with the
    /// ending .jsonl; by default the CSV goes to standard output
    #[arg(short, long, value_name = "FILE.csv")]
    output: Option<PathBuf>,
    /// One document on standard output at the end, docs/schema/meter.schema.json
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    units::time(text)
        .ok()
        .filter(|interval| {
            (Duration::from_millis(10)..=Duration::from_secs(86_400)).contains(interval)
        })
        .ok_or_else(|| "not a time from 10ms to a day".to_owned())
}

/// The files that samples are written to.
pub(crate) struct Files {
    csv: Option<Box<dyn Write + Send>>,
    lines: Option<BufWriter<File>>,
}

impl Files {
    pub(crate) fn open(output: Option<&Path>, to_stdout: bool) -> anyhow::Result<Self> {
        let mut files = Self { csv: None, lines: None };
        if let Some(path) = output {
            let create = |path: &Path| -> anyhow::Result<_> {
                let file = File::create(path).with_context(|| path.display().to_string())?;
                Ok(BufWriter::new(file))
            };
            let lines = path.with_extension("jsonl");
            anyhow::ensure!(lines != path, "-o names the CSV; the JSON lines go beside it");
            files.csv = Some(Box::new(create(path)?));
            files.lines = Some(create(&lines)?);
        } else if to_stdout {
            files.csv = Some(Box::new(std::io::stdout()));
        }
        if let Some(csv) = &mut files.csv {
            writeln!(csv, "{HEADER}")?;
            csv.flush()?;
        }
        Ok(files)
    }

    /// Writes a sample and flushes it: the program may be killed at any time.
    pub(crate) fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        if let Some(csv) = &mut self.csv {
            writeln!(csv, "{}", sample.system.to_csv())?;
            csv.flush()?;
        }
        if let Some(lines) = &mut self.lines {
            serde_json::to_writer(&mut *lines, sample)?;
            lines.write_all(b"\n")?;
            lines.flush()?;
        }
        Ok(())
    }
}

impl Arguments {
    /// Measures until it is stopped.
    ///
    /// # Errors
    /// A process does not exist, or files cannot be written.
    pub fn run(&self) -> anyhow::Result<Exit> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut files = Files::open(self.output.as_deref(), !self.json)?;
        let options =
            Options { pids: self.pid.clone(), with_children: self.children, network_of: None };
        let meter = Meter::start(&options)?;
        let summary = Arc::new(Mutex::new(Document::begin(meter.initial())));
        let kept = summary.clone();
        let recording = Recording::start(
            meter,
            self.interval,
            Box::new(move |sample| {
                kept.lock().unwrap_or_else(PoisonError::into_inner).take(sample);
                files.write(sample)
            }),
        )?;
        runtime.block_on(self.ended(&recording))?;
        recording.stop()?;
        if self.json {
            let summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            crate::text::json(&*summary)?;
        }
        Ok(Exit::Success)
    }

    /// Waits for a signal, the end of the duration, or a recording that fails.
    async fn ended(&self, recording: &Recording) -> std::io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let duration = self.duration.unwrap_or(Duration::MAX);
        // Leaves time for the last sample, which is due exactly at the end.
        let end = tokio::time::sleep(duration.saturating_add(Duration::from_millis(5)));
        let failed = async {
            while !recording.has_failed() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = end => {}
            () = failed => {}
        }
        Ok(())
    }
}
