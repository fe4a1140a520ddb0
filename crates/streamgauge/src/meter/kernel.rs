//! The network counters of the kernel. They explain the tail of a latency.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The counters that are kept, named as in nstat(8).
const KEPT: [&str; 34] = [
    "TcpActiveOpens",
    "TcpPassiveOpens",
    "TcpAttemptFails",
    "TcpEstabResets",
    "TcpInSegs",
    "TcpOutSegs",
    "TcpRetransSegs",
    "TcpInErrs",
    "TcpOutRsts",
    "TcpExtPruneCalled",
    "TcpExtRcvPruned",
    "TcpExtOfoPruned",
    "TcpExtTCPRcvQDrop",
    "TcpExtTCPBacklogDrop",
    "TcpExtTCPRcvCollapsed",
    "TcpExtTCPRcvCoalesce",
    "TcpExtTCPOFOQueue",
    "TcpExtTCPOFODrop",
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtTCPReqQFullDrop",
    "TcpExtTCPTimeouts",
    "TcpExtTCPLossProbes",
    "TcpExtTCPLostRetransmit",
    "TcpExtTCPFastRetrans",
    "TcpExtTCPSlowStartRetrans",
    "TcpExtTCPSynRetrans",
    "TcpExtTCPZeroWindowDrop",
    "TcpExtTCPToZeroWindowAdv",
    "TcpExtTCPWantZeroWindowAdv",
    "TcpExtTCPMemoryPressures",
    "TcpExtTCPAbortOnMemory",
    "TcpExtTCPAbortOnTimeout",
    "UdpRcvbufErrors",
];

/// Counters of this network namespace, named as in nstat(8). They count since the system started
/// or, after [`Kernel::since`], over a time. Counters that this kernel does not have are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "BTreeMap<String, u64>")]
#[schemars(!from)]
pub struct Kernel(pub BTreeMap<&'static str, u64>);

impl From<BTreeMap<String, u64>> for Kernel {
    /// Takes what another process has read. Counters that are not kept are left out.
    fn from(read: BTreeMap<String, u64>) -> Self {
        let kept = |name: &&'static str| Some((*name, *read.get(*name)?));
        Self(KEPT.iter().filter_map(kept).collect())
    }
}

impl Kernel {
    /// Reads the counters. Unreadable ones are absent.
    pub fn read() -> Self {
        Self::read_in(Path::new(super::NET))
    }

    /// Reads the counters of another namespace. `net` is `/proc/PID/net` of a process in it.
    pub(super) fn read_in(net: &Path) -> Self {
        let mut counters = Self::default();
        for file in ["snmp", "netstat"] {
            counters.take(&fs::read_to_string(net.join(file)).unwrap_or_default());
        }
        counters
    }

    /// Takes the counters of a file with pairs of lines: `Tcp: NAME NAME …` and `Tcp: VALUE VALUE
    /// …`.
    fn take(&mut self, text: &str) {
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let (mut names, mut values) = (names.split(' '), values.split(' '));
            let Some(protocol) = names.next().and_then(|first| first.strip_suffix(':')) else {
                continue;
            };
            values.next();
            for (name, value) in names.zip(values) {
                let kept = |kept: &&&str| kept.strip_prefix(protocol) == Some(name);
                if let (Some(kept), Ok(value)) = (KEPT.iter().find(kept), value.parse()) {
                    self.0.insert(kept, value);
                }
            }
        }
    }

    /// What has been counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let difference = |(name, now): (&&'static str, &u64)| {
            let then = before.0.get(name).copied().unwrap_or_default();
            (*name, now.saturating_sub(then))
        };
        Self(self.0.iter().map(difference).collect())
    }

    /// Adds the counters of another machine.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    /// One counter; 0 if it is absent.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// Sockets of this network namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sockets {
    /// Sockets of any kind.
    pub used: u64,
    /// TCP sockets in use.
    pub tcp_in_use: u64,
    /// TCP sockets that no process has open.
    pub tcp_orphan: u64,
    /// TCP connections in TIME-WAIT.
    pub tcp_time_wait: u64,
    /// Allocated TCP sockets.
    pub tcp_allocated: u64,
    /// Memory in the queues of TCP sockets of the whole machine, in bytes.
    pub tcp_memory: u64,
    /// UDP sockets in use.
    pub udp_in_use: u64,
    /// Memory in the queues of UDP sockets of the whole machine, in bytes.
    pub udp_memory: u64,
}

impl Sockets {
    /// Reads /proc/net/sockstat. Missing figures are 0.
    pub fn read() -> Self {
        Self::read_in(Path::new(super::NET))
    }

    pub(super) fn read_in(net: &Path) -> Self {
        let text = fs::read_to_string(net.join("sockstat")).unwrap_or_default();
        Self::parse(&text, rustix::param::page_size() as u64)
    }

    /// The larger value of each figure.
    pub fn most(&self, other: &Self) -> Self {
        Self {
            used: self.used.max(other.used),
            tcp_in_use: self.tcp_in_use.max(other.tcp_in_use),
            tcp_orphan: self.tcp_orphan.max(other.tcp_orphan),
            tcp_time_wait: self.tcp_time_wait.max(other.tcp_time_wait),
            tcp_allocated: self.tcp_allocated.max(other.tcp_allocated),
            tcp_memory: self.tcp_memory.max(other.tcp_memory),
            udp_in_use: self.udp_in_use.max(other.udp_in_use),
            udp_memory: self.udp_memory.max(other.udp_memory),
        }
    }

    fn parse(text: &str, page: u64) -> Self {
        let mut sockets = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let protocol = words.next().unwrap_or_default();
            while let (Some(name), Some(value)) = (words.next(), words.next()) {
                let value: u64 = value.parse().unwrap_or_default();
                let (field, unit) = match (protocol, name) {
                    ("sockets:", "used") => (&mut sockets.used, 1),
                    ("TCP:", "inuse") => (&mut sockets.tcp_in_use, 1),
                    ("TCP:", "orphan") => (&mut sockets.tcp_orphan, 1),
                    ("TCP:", "tw") => (&mut sockets.tcp_time_wait, 1),
                    ("TCP:", "alloc") => (&mut sockets.tcp_allocated, 1),
                    ("TCP:", "mem") => (&mut sockets.tcp_memory, page),
                    ("UDP:", "inuse") => (&mut sockets.udp_in_use, 1),
                    ("UDP:", "mem") => (&mut sockets.udp_memory, page),
                    _ => continue,
                };
                *field = value.saturating_mul(unit);
            }
        }
        sockets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name_wherever_they_stand() {
        let mut before = Kernel::default();
        before.take(
            "Tcp: RtoAlgorithm ActiveOpens MaxConn RetransSegs\nTcp: 1 10 -1 3\n\
             TcpExt: SyncookiesSent PruneCalled TCPRcvQDrop\nTcpExt: 5 6 7\n",
        );
        assert_eq!(
            (before.of("TcpRetransSegs"), before.of("TcpExtTCPRcvQDrop"), before.of("TcpMaxConn")),
            (3, 7, 0)
        );
        let mut after = Kernel::default();
        after.take("TcpExt: TCPRcvQDrop PruneCalled\nTcpExt: 17 6\nTcpExt:\nbroken\n");
        let between = after.since(&before);
        assert_eq!((between.of("TcpExtTCPRcvQDrop"), between.of("TcpExtPruneCalled")), (10, 0));
    }

    #[test]
    fn socket_memory_is_in_bytes() {
        let text = "sockets: used 42\nTCP: inuse 5 orphan 1 tw 2 alloc 7 mem 3\nUDP: inuse 4 mem 1\n\
                    FRAG: inuse 0 memory 0\n";
        let sockets = Sockets::parse(text, 4096);
        assert_eq!(
            sockets,
            Sockets {
                used: 42,
                tcp_in_use: 5,
                tcp_orphan: 1,
                tcp_time_wait: 2,
                tcp_allocated: 7,
                tcp_memory: 3 * 4096,
                udp_in_use: 4,
                udp_memory: 4096,
            }
        );
        assert_eq!(Sockets::parse("TCP: inuse x\nTCP:", 1), Sockets::default());
    }

    #[test]
    fn this_kernel_has_the_counters_that_explain_a_tail() {
        let kernel = Kernel::read();
        for name in
            ["TcpRetransSegs", "TcpExtTCPRcvQDrop", "TcpExtPruneCalled", "TcpExtListenDrops"]
        {
            assert!(kernel.0.contains_key(name), "{name}");
        }
        assert!(Sockets::read().used > 0);
    }
}
