//! A summary of a measurement, in memory that does not grow with its length.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::kernel::{Kernel, Sockets};
use super::{Sample, Usage};

/// The results of `meter`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Document {
    /// Duration of the measurement in seconds.
    pub elapsed: f64,
    /// Number of samples.
    pub samples: u64,
    /// The longest interval between two samples, in seconds.
    pub longest_interval: f64,
    /// The load average over one minute.
    pub load: Range,
    /// Memory in use, in bytes, without buffers and caches.
    pub memory: Range,
    /// The share of time that processors were not idle, in per cent.
    pub cpu: Range,
    /// Bytes sent over all network interfaces.
    pub up: u64,
    /// Bytes received over all network interfaces.
    pub down: u64,
    /// The processes, by id.
    pub processes: BTreeMap<i32, Process>,
    /// Network counts of the kernel during the measurement, named as in nstat.
    pub kernel: Kernel,
    /// The largest value of each figure of sockets.
    pub sockets: Sockets,
    /// Memory of the kernel's own objects (slabs) of the whole machine, in bytes.
    pub slab: Range,
}

/// A figure over time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Range {
    /// The smallest value.
    pub min: f64,
    /// Mean of all samples, weighted by the lengths of their intervals.
    pub mean: f64,
    /// The largest value.
    pub max: f64,
    /// Total length of these intervals in seconds.
    #[serde(skip)]
    weight: f64,
}

impl Range {
    fn take(&mut self, value: f64, seconds: f64) {
        if self.weight == 0.0 {
            (self.min, self.max) = (value, value);
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.weight += seconds;
        if self.weight > 0.0 {
            self.mean += (value - self.mean) * seconds / self.weight;
        }
    }
}

/// A process over time.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Process {
    /// Name of the process.
    pub name: String,
    /// Processor time in user mode during the measurement, in seconds.
    pub cpu_user: f64,
    /// Processor time in the kernel during the measurement, in seconds.
    pub cpu_system: f64,
    /// Resident memory in bytes.
    pub resident: Range,
    /// Proportional memory in bytes; 0 if it could not be read.
    pub proportional: Range,
    /// Resident anonymous memory in bytes; 0 if it could not be read.
    pub anonymous: Range,
    /// Open file descriptors; 0 if they could not be counted.
    pub descriptors: Range,
    /// Threads.
    pub threads: Range,
    /// Voluntary context switches during the measurement.
    pub switches_voluntary: u64,
    /// Involuntary context switches during the measurement.
    pub switches_involuntary: u64,
    #[serde(skip)]
    #[schemars(skip)]
    first: Usage,
}

impl Document {
    /// Starts a measurement. The processes have used `initial` before it.
    pub fn begin(initial: &[Usage]) -> Self {
        let process = |usage: &Usage| (usage.pid, Process::begin(usage.clone()));
        Self { processes: initial.iter().map(process).collect(), ..Self::default() }
    }

    /// Takes a sample.
    pub fn take(&mut self, sample: &Sample) {
        let Sample { at, interval, system, processes, kernel, sockets, slab } = sample;
        self.elapsed = *at;
        self.samples += 1;
        self.longest_interval = self.longest_interval.max(*interval);
        self.load.take(system.load, *interval);
        self.memory.take(system.memory as f64, *interval);
        self.cpu.take(system.cpu, *interval);
        (self.up, self.down) = (system.up, system.down);
        self.kernel = kernel.clone();
        self.sockets = self.sockets.most(sockets);
        self.slab.take(*slab as f64, *interval);
        for usage in processes {
            // A process that was not there at the start counts from its own start.
            let begun = || Process::begin(Usage::nothing(usage.pid, &usage.name));
            let process = self.processes.entry(usage.pid).or_insert_with(begun);
            process.take(usage, *interval);
        }
    }
}

impl Process {
    fn begin(first: Usage) -> Self {
        Self {
            name: first.name.clone(),
            cpu_user: 0.0,
            cpu_system: 0.0,
            resident: Range::default(),
            proportional: Range::default(),
            anonymous: Range::default(),
            descriptors: Range::default(),
            threads: Range::default(),
            switches_voluntary: 0,
            switches_involuntary: 0,
            first,
        }
    }

    fn take(&mut self, usage: &Usage, seconds: f64) {
        self.cpu_user = usage.cpu_user - self.first.cpu_user;
        self.cpu_system = usage.cpu_system - self.first.cpu_system;
        self.resident.take(usage.resident as f64, seconds);
        self.proportional.take(usage.proportional.unwrap_or_default() as f64, seconds);
        self.anonymous.take(usage.anonymous.unwrap_or_default() as f64, seconds);
        self.descriptors.take(usage.descriptors.unwrap_or_default() as f64, seconds);
        self.threads.take(usage.threads as f64, seconds);
        let since = |now: u64, then: u64| now.saturating_sub(then);
        self.switches_voluntary = since(usage.switches_voluntary, self.first.switches_voluntary);
        self.switches_involuntary =
            since(usage.switches_involuntary, self.first.switches_involuntary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_by_time() {
        let mut range = Range::default();
        range.take(10.0, 1.0);
        range.take(40.0, 2.0);
        range.take(5.0, 0.0);
        assert_eq!((range.min, range.mean, range.max), (5.0, 30.0, 40.0));
    }
}
