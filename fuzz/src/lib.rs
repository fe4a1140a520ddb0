//! Shared by several targets: limits on memory, a folder, and RTP.

use std::alloc::System;
use std::time::{Duration, Instant};

use cap::Cap;
use rtp::reorder::{Next, Packet, Reorder};
use rtp::{AccessUnit, Depacketizer, Output};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Runs `what`, which may allocate this many bytes of memory. With more the process aborts, which
/// is a finding.
pub fn within<T>(bytes: usize, what: impl FnOnce() -> T) -> T {
    below(allocated().saturating_add(bytes), what)
}

/// Runs `what` while the process may have at most this many bytes of memory.
pub fn below<T>(most: usize, what: impl FnOnce() -> T) -> T {
    ALLOCATOR.set_limit(most).expect("more than there is now");
    let done = what();
    ALLOCATOR.set_limit(usize::MAX).expect("no limit");
    done
}

/// Bytes of memory that the process has allocated.
pub fn allocated() -> usize {
    ALLOCATOR.allocated()
}

/// A folder of the fuzzer's own. It is in memory where possible, because it is written for every
/// input.
pub fn folder() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    let at = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("headwater-fuzz").tempdir_in(at);
    folder.expect("a folder").keep()
}

/// The access units that packets lead to. Each packet: its sequence number, flags (the marker, a pause, the
/// RTP time), length, payload.
pub fn access_units(mut depacketizer: Depacketizer, data: &[u8]) -> Vec<AccessUnit> {
    let mut reorder = Reorder::new(Duration::from_millis(200));
    let (mut rest, mut now, mut units) = (data, Instant::now(), Vec::new());
    while let &[sequence, flags, length, ref after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(length.into()));
        rest = after;
        let time = u32::from(flags >> 4);
        let sequence = u64::from(sequence);
        let packet = Packet { sequence, time, marker: flags & 1 != 0, payload: payload.into() };
        reorder.push(packet, now);
        now += Duration::from_millis(u64::from(flags & 2) * 150);
        while let Some(next) = reorder.pop(now) {
            match next {
                Next::Lost(_) => depacketizer.lose(),
                Next::Packet(packet) => {
                    depacketizer.push(packet.time, packet.marker, &packet.payload, |output| {
                        if let Output::Unit(unit) = output {
                            units.push(unit);
                        }
                    });
                }
            }
        }
    }
    units
}
