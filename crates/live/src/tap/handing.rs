//! Units of a stream that came from another machine, or goes there: they come singly and in parts.

use std::collections::VecDeque;
use std::sync::Arc;

use media::Sample;

use super::{Taps, Unit};
use crate::UnixMicros;
use crate::change::{NewPart, NewUnit, UnitPlace};
use crate::window::{Header, SampleLayout};

/// The most units that wait for those before them, and the most bytes of these.
const MOST_AHEAD: usize = 256;
const MOST_BYTES: usize = 4 << 20;
/// A stream has fewer periods than this. Multiples of this are added to the numbers of periods.
pub(crate) const TURN: u64 = 1 << 40;

/// Hands each unit of a track to its taps once, in order: as soon as it comes singly, or with its part if it, or
/// one before it, is lost.
#[derive(Debug, Default)]
pub(crate) struct Handing {
    last: Option<UnitPlace>,
    /// Added to the numbers of periods: see [`Handing::go_elsewhere`].
    turned: u64,
    /// Units that came before the one that they follow.
    ahead: VecDeque<NewUnit>,
}

impl Handing {
    /// Takes a unit that came singly. `header` is the track's newest.
    pub(crate) fn unit(
        &mut self,
        unit: NewUnit,
        taps: &Taps,
        header: &Arc<Header>,
        now: UnixMicros,
    ) {
        if !taps.are_read() {
            return self.rest(taps);
        }
        let bytes: usize = self.ahead.iter().map(|unit| unit.data.len()).sum();
        if self.ahead.len() >= MOST_AHEAD || bytes + unit.data.len() > MOST_BYTES {
            self.ahead.clear();
        }
        self.ahead.push_back(unit);
        self.go_on(taps, header, now);
    }

    /// Takes the units of a part of the segment that is in `period` and has this header.
    pub(crate) fn part(
        &mut self,
        part: &NewPart,
        taps: &Taps,
        (period, header): (u64, &Arc<Header>),
        now: UnixMicros,
    ) {
        if !taps.are_read() {
            return self.rest(taps);
        }
        for &SampleLayout { dts, cts, sync, offset, size } in &part.samples {
            if self.last.is_some_and(|last| last >= (period, dts)) {
                continue;
            }
            let data = part.bytes.slice(offset as usize..(offset + size) as usize);
            let sample = Sample { dts, cts, duration: 0, sync, data };
            self.hand(taps, (period, header), sample, now);
        }
        self.go_on(taps, header, now);
    }

    /// Hands on what follows the last unit.
    fn go_on(&mut self, taps: &Taps, header: &Arc<Header>, now: UnixMicros) {
        while let Some(last) = self.last {
            self.ahead.retain(|unit| unit.place > last);
            let follows = |unit: &NewUnit| unit.follows == Some(last) && unit.header == header.msn;
            let Some(next) = self.ahead.iter().position(follows) else { return };
            let Some(unit) = self.ahead.remove(next) else { return };
            let NewUnit { place: (period, dts), cts, duration, sync, data, .. } = unit;
            let sample = Sample { dts, cts, duration, sync, data };
            self.hand(taps, (period, header), sample, now);
        }
    }

    /// Notes that another machine went on with the stream. `newest` is the last unit that came in a part.
    ///
    /// That machine does not have the single units that came after `newest`, and may use the same places for
    /// others. So the numbers of periods change for viewers that got such units: their media do not continue.
    pub(crate) fn go_elsewhere(&mut self, newest: Option<UnitPlace>) {
        self.ahead.clear();
        if self.last > newest {
            self.last = None;
            self.turned = self.turned.wrapping_add(TURN);
        }
    }

    /// Hands a unit to those who read them.
    pub(crate) fn hand(
        &mut self,
        taps: &Taps,
        (period, header): (u64, &Arc<Header>),
        sample: Sample,
        received: UnixMicros,
    ) {
        self.last = Some((period, sample.dts));
        let (period, header) = (period.wrapping_add(self.turned), Arc::clone(header));
        taps.hand(Unit { sample, period, header, received });
    }

    /// Forgets everything: nobody reads units.
    fn rest(&mut self, taps: &Taps) {
        *self = Self::default();
        taps.rest();
    }
}
