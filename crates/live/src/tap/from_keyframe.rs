//! A tap that begins with the newest keyframe.

use std::collections::VecDeque;
use std::sync::Arc;

use media::Sample;
use tokio::sync::watch;

use super::{Tap, Tapped, Taps, Unit};
use crate::window::Window;

/// Units that wait for the part that they follow.
const MOST_HELD: usize = 128;

/// The most units between the newest keyframe and the first that came by the tap. If there are more,
/// decoding starts at the next keyframe.
const MOST_BEFORE: usize = 1_024;

/// Reads a track's access units from its newest keyframe on: those that have passed from the window,
/// and the others from a tap. Each comes once, in decode order.
///
/// Where the window does not lead up to the tap, units begin anywhere. So a decoder leaves out those
/// before the first [`sync`](Sample::sync) unit.
#[derive(Debug)]
pub struct FromKeyframe {
    tap: Tap,
    window: watch::Receiver<Arc<Window>>,
    /// Units that came by the tap while the window had none that they follow.
    held: Vec<Arc<Unit>>,
    /// Units that come before the tap's next.
    ready: VecDeque<Arc<Unit>>,
    has_begun: bool,
}

impl FromKeyframe {
    pub(crate) fn new(taps: &Taps, window: watch::Receiver<Arc<Window>>) -> Self {
        let (tap, has_begun) = taps.tap_from_keyframe();
        Self { tap, window, held: Vec::new(), ready: VecDeque::new(), has_begun }
    }

    /// Waits for the next unit. Nothing is lost if the wait is given up.
    pub async fn next(&mut self) -> Tapped {
        while !self.has_begun {
            if let Some(before) = before(&self.window.borrow_and_update(), &self.held) {
                self.ready = before.into_iter().chain(self.held.drain(..)).collect();
                self.has_begun = true;
                break;
            }
            tokio::select! {
                tapped = self.tap.next() => match tapped {
                    Tapped::Unit(unit) if !unit.sample.sync && self.held.len() < MOST_HELD => {
                        self.held.push(unit);
                    }
                    Tapped::Lost(_) => self.held.clear(),
                    begins => {
                        self.held = Vec::new();
                        self.has_begun = true;
                        return begins;
                    }
                },
                _ = self.window.changed() => {}
            }
        }
        match self.ready.pop_front() {
            Some(unit) => Tapped::Unit(unit),
            None => self.tap.next().await,
        }
    }
}

/// All units of the window from the newest keyframe before the first of `held` up to that one.
/// `None` if the window does not have all of them.
fn before(window: &Window, held: &[Arc<Unit>]) -> Option<Vec<Arc<Unit>>> {
    let first = held.first()?;
    let mut units = Vec::new();
    let mut follows = false;
    for segment in window.all().rev() {
        if segment.period != first.period || segment.header.msn != first.header.msn {
            return None;
        }
        for part in segment.parts.iter().rev() {
            for layout in part.samples.iter().rev() {
                if layout.dts >= first.sample.dts {
                    // The unit that was held first is in the window, and so is all before it.
                    follows |= layout.dts == first.sample.dts;
                    continue;
                }
                if !follows || units.len() > MOST_BEFORE {
                    return None;
                }
                let start = layout.offset as usize;
                let bytes = part.region.to_bytes();
                let sample = Sample {
                    dts: layout.dts,
                    cts: layout.cts,
                    duration: 0,
                    sync: layout.sync,
                    data: bytes.slice(start..start + layout.size as usize),
                };
                let is_key = sample.sync;
                let header = Arc::clone(&segment.header);
                let received = part.published;
                units.push(Arc::new(Unit { sample, period: segment.period, header, received }));
                if is_key {
                    units.reverse();
                    return Some(units);
                }
            }
        }
    }
    None
}
