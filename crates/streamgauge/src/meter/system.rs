//! The six metrics of the whole machine that the daemon of the media server measurement initiative
//! (DDVTECH, 2014) collects once a second. They are meant for servers that cannot be separated from
//! the system they run on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use procfs::net::InterfaceDeviceStatus;
use procfs::{CpuTime, Current, CurrentSI, FromRead, KernelStats, LoadAverage, Meminfo};
use schemars::JsonSchema;
use serde::Serialize;

/// The six metrics at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct System {
    /// Whole seconds since the start of the measurement. They show intervals that were too long.
    pub seconds: u64,
    /// The load average over one minute.
    pub load: f64,
    /// Memory in use in bytes, without the kernel's buffers and caches. Shared memory and memory
    /// files are in use, although the kernel counts them as caches.
    pub memory: u64,
    /// Share of the time since the last sample during which processors were not idle, in per cent
    /// of all processors. Waiting for a disk is idle.
    pub cpu: f64,
    /// Bytes sent over all network interfaces since the start of the measurement.
    pub up: u64,
    /// Bytes received over all network interfaces since the start of the measurement.
    pub down: u64,
}

/// The columns of the CSV, as the initiative names them.
pub const HEADER: &str = "seconds,load,memory,cpu,up,down";

impl System {
    /// Returns a line of the CSV, without its end.
    pub fn to_csv(&self) -> String {
        let Self { seconds, load, memory, cpu, up, down } = self;
        format!("{seconds},{load:.2},{memory},{cpu:.2},{up},{down}")
    }
}

/// Reads [`System`], and keeps the counters of the last sample.
#[derive(Debug, Default)]
pub(super) struct Reader {
    cpu: Option<Ticks>,
    interfaces: HashMap<String, Traffic>,
    total: Traffic,
    /// `/proc/net`, or that of another namespace.
    net: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    busy: u64,
    all: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Traffic {
    up: u64,
    down: u64,
}

impl Reader {
    /// Starts counting.
    pub(super) fn start(net: PathBuf) -> procfs::ProcResult<Self> {
        let cpu = Some(Ticks::of(&KernelStats::current()?.total));
        let mut reader = Self { cpu, net, ..Self::default() };
        reader.count(traffic(&reader.net)?);
        reader.total = Traffic::default();
        Ok(reader)
    }

    pub(super) fn read(&mut self, seconds: u64) -> procfs::ProcResult<System> {
        let cpu = Ticks::of(&KernelStats::current()?.total);
        let share = self.cpu.map_or(0.0, |before| cpu.busy_share_since(before));
        self.cpu = Some(cpu);
        self.count(traffic(&self.net)?);
        Ok(System {
            seconds,
            load: f64::from(LoadAverage::current()?.one),
            memory: in_use(&Meminfo::current()?),
            cpu: share * 100.0,
            up: self.total.up,
            down: self.total.down,
        })
    }

    /// Adds the traffic since the last sample. A new interface counts from 0. An interface whose
    /// counters went back has started anew.
    fn count(&mut self, now: HashMap<String, Traffic>) {
        for (name, now) in &now {
            let before = self.interfaces.get(name).copied().unwrap_or_default();
            let since = |now: u64, before: u64| if now >= before { now - before } else { now };
            self.total.up += since(now.up, before.up);
            self.total.down += since(now.down, before.down);
        }
        self.interfaces = now;
    }
}

fn traffic(net: &Path) -> procfs::ProcResult<HashMap<String, Traffic>> {
    let InterfaceDeviceStatus(devices) = InterfaceDeviceStatus::from_file(net.join("dev"))?;
    let traffic = |device: procfs::net::DeviceStatus| Traffic {
        up: device.sent_bytes,
        down: device.recv_bytes,
    };
    Ok(devices.into_iter().map(|(name, device)| (name, traffic(device))).collect())
}

/// Memory of the kernel's own objects in bytes.
pub(super) fn slab() -> procfs::ProcResult<u64> {
    Ok(Meminfo::current()?.slab)
}

/// Memory in use by proc_meminfo(5), in bytes.
fn in_use(memory: &Meminfo) -> u64 {
    // The kernel counts memory files (shm, memfd, tmpfs) as cached, but it cannot drop them.
    let cached = memory.cached.saturating_sub(memory.shmem.unwrap_or_default());
    let unused =
        memory.mem_free + memory.buffers + cached + memory.s_reclaimable.unwrap_or_default();
    memory.mem_total.saturating_sub(unused)
}

impl Ticks {
    /// Reads the times of proc_stat(5). The time of guests is part of the user's time.
    fn of(time: &CpuTime) -> Self {
        let busy = time.user
            + time.nice
            + time.system
            + time.irq.unwrap_or_default()
            + time.softirq.unwrap_or_default()
            + time.steal.unwrap_or_default();
        Self { busy, all: busy + time.idle + time.iowait.unwrap_or_default() }
    }

    fn busy_share_since(self, before: Self) -> f64 {
        // The kernel's count of idle time may go back a little.
        let all = self.all.saturating_sub(before.all);
        let busy = self.busy.saturating_sub(before.busy).min(all);
        if all == 0 { 0.0 } else { busy as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_from_the_start_whatever_interfaces_do() {
        let at = |up, down| Traffic { up, down };
        let mut reader = Reader::default();
        reader.count(HashMap::from([("lo".to_owned(), at(100, 100))]));
        reader.total = Traffic::default();
        let eth = |t| [("lo".to_owned(), at(150, 160)), ("eth0".to_owned(), t)];
        reader.count(HashMap::from(eth(at(5, 7))));
        assert_eq!(reader.total, at(55, 67));
        // eth0 was removed and came back. Its counters start anew.
        reader.count(HashMap::from(eth(at(3, 8))));
        assert_eq!(reader.total, at(58, 68));
        reader.count(HashMap::new());
        assert_eq!(reader.total, at(58, 68));
    }

    #[test]
    fn waiting_is_idle_and_steps_back_are_nothing() {
        let before = Ticks { busy: 100, all: 1000 };
        assert_eq!(Ticks { busy: 150, all: 1200 }.busy_share_since(before), 0.25);
        assert_eq!(Ticks { busy: 99, all: 1100 }.busy_share_since(before), 0.0);
        assert_eq!(Ticks { busy: 200, all: 1000 }.busy_share_since(before), 0.0);
    }

    #[test]
    fn a_line_has_the_columns_of_the_header() {
        let system = System { seconds: 61, load: 0.5, memory: 123, cpu: 12.345, up: 4, down: 5 };
        assert_eq!(system.to_csv(), "61,0.50,123,12.35,4,5");
        assert_eq!(HEADER.split(',').count(), system.to_csv().split(',').count());
    }
}
