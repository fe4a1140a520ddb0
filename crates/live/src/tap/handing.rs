//! Units of a copy, which come singly and in parts.

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

/// Hands each unit of a copied track to its taps once, in order: as soon as it comes singly, or with its part if it, or
/// one before it, is lost.
#[derive(Debug, Default)]
pub(crate) struct Handing {
    last: Option<UnitPlace>,
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
            let place = (period, dts);
            if self.last.is_some_and(|last| last >= place) {
                continue;
            }
            self.last = Some(place);
            let data = part.bytes.slice(offset as usize..(offset + size) as usize);
            let sample = Sample { dts, cts, duration: 0, sync, data };
            taps.hand(Unit { sample, period, header: Arc::clone(header), received: now });
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
            self.last = Some((period, dts));
            let sample = Sample { dts, cts, duration, sync, data };
            taps.hand(Unit { sample, period, header: Arc::clone(header), received: now });
        }
    }

    /// Forgets everything: nobody reads units.
    fn rest(&mut self, taps: &Taps) {
        *self = Self::default();
        taps.rest();
    }
}
