//! The part of making access units of packets that all payload formats of video share: what is lost, and what
//! cannot be decoded without it.

use std::fmt::Debug;

use bytes::Bytes;
use media::{Codec, Error};

/// The longest access unit. Encoders of live video stay far below.
pub(crate) const MOST_BYTES: usize = 8 << 20;

/// An access unit that can be decoded, given all since the last keyframe.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessUnit {
    /// RTP timestamp.
    pub time: u32,
    /// Whether decoding can start here.
    pub key: bool,
    /// The codec and its configuration, if that is new.
    pub codec: Option<Codec>,
    /// What a [`media::Sample`] of the codec has. H.264 and HEVC are NAL units with lengths of four bytes,
    /// without parameter sets.
    pub data: Bytes,
}

/// What a packet led to.
#[derive(Debug)]
pub enum Output {
    /// A complete access unit.
    Unit(AccessUnit),
    /// A picture is lost, so all are dropped until a keyframe comes. Ask for one. The error says what is
    /// wrong where no packet is missing.
    Broken(Option<Error>),
}

/// A payload format, and the access unit so far.
pub(crate) trait PayloadFormat: Debug + Send {
    /// Its name, for errors.
    fn name(&self) -> &'static str;

    /// Takes a payload. `None` if it breaks the format.
    fn take(&mut self, payload: &[u8]) -> Option<()>;

    /// Gives up a unit that has come in part only. Returns whether there was one.
    fn give_up_fragment(&mut self) -> bool;

    /// Ends the access unit.
    fn finish(&mut self) -> Finished;

    /// The configuration of a keyframe that has these data, if it is new.
    fn configuration(&mut self, data: &[u8]) -> Result<Option<Codec>, Error>;
}

/// An access unit that is over.
pub(crate) struct Finished {
    pub(crate) data: Vec<u8>,
    /// Whether decoding can start here.
    pub(crate) key: bool,
    /// Whether it certainly has its first packet.
    pub(crate) has_start: bool,
    /// Whether there is a picture in it.
    pub(crate) has_picture: bool,
    /// Whether decoding starts here always, as if nothing was before.
    pub(crate) breaks: bool,
    /// Whether it may refer to pictures before the keyframe that it follows.
    pub(crate) leads: bool,
}

/// Appends to an access unit. `None` if it becomes too long.
pub(crate) fn append(unit: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    (unit.len() + data.len() <= MOST_BYTES).then(|| unit.extend_from_slice(data))
}

/// Makes access units of the payloads of packets in order. It lets none pass that cannot be decoded:
/// after a loss it waits for a keyframe.
#[derive(Debug)]
pub struct Depacketizer {
    format: Box<dyn PayloadFormat>,
    /// RTP timestamp of the access unit so far.
    time: Option<u32>,
    /// Whether something is missing from the access unit or wrong in it.
    spoilt: bool,
    /// Whether something in it breaks the format, although no packet is missing.
    malformed: bool,
    /// Whether packets are missing before the next one.
    after_loss: bool,
    /// Whether packets are missing before the access unit: perhaps its own first ones.
    uncertain: bool,
    waits: bool,
    /// Whether decoding began with the newest keyframe. Pictures that refer to others before it are left out.
    began: bool,
}

impl Depacketizer {
    pub(crate) fn new(format: impl PayloadFormat + 'static) -> Self {
        Self {
            format: Box::new(format),
            time: None,
            spoilt: false,
            malformed: false,
            // The first packet that comes need not be the first that was sent: others overtake it.
            after_loss: true,
            uncertain: false,
            waits: true,
            began: true,
        }
    }

    /// Whether it waits for a keyframe.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Notes that packets are missing before the next one.
    pub fn lose(&mut self) {
        self.spoilt |= self.time.is_some();
        self.after_loss = true;
        self.format.give_up_fragment();
        self.waits = true;
    }

    /// Takes a packet's payload. `each` gets what it leads to, at most two outputs.
    pub fn push(&mut self, time: u32, marker: bool, payload: &[u8], mut each: impl FnMut(Output)) {
        if payload.is_empty() {
            // Padding (RFC 3550 5.1): Chromium finds out so how much the link carries. It comes with the
            // time of the picture before, also after the end of that picture.
            return;
        }
        // The marker of an access unit's last packet may be missing (RFC 6184 5.1).
        if self.time.is_some_and(|current| current != time) {
            self.finish(&mut each);
        }
        let lost = std::mem::take(&mut self.after_loss);
        if self.time.replace(time).is_none() {
            self.uncertain = lost;
        }
        // After a loss, payloads may continue what is not there.
        let is_complete = !self.spoilt && !self.uncertain && !lost;
        if self.format.take(payload).is_none() {
            self.malformed |= is_complete;
            self.spoilt = true;
            self.format.give_up_fragment();
        }
        if marker {
            self.finish(&mut each);
        }
    }

    /// Ends the access unit.
    fn finish(&mut self, each: &mut impl FnMut(Output)) {
        let Some(time) = self.time.take() else { return };
        let unfinished = self.format.give_up_fragment();
        let Finished { data, key, has_start, has_picture, breaks, leads } = self.format.finish();
        let malformed = std::mem::take(&mut self.malformed);
        let spoilt =
            std::mem::take(&mut self.spoilt) || unfinished || (self.uncertain && !has_start);
        if spoilt {
            self.waits = true;
            let (what, at) = (self.format.name().into(), data.len() as u64);
            let error = malformed.then_some(Error::Malformed { what, at });
            return each(Output::Broken(error));
        }
        if !has_picture || (leads && self.began && !self.waits) {
            return;
        }
        if !key {
            if !self.waits {
                each(Output::Unit(AccessUnit { time, key, codec: None, data: data.into() }));
            } else {
                each(Output::Broken(None));
            }
            return;
        }
        match self.format.configuration(&data) {
            Ok(codec) => {
                self.began = std::mem::take(&mut self.waits) || breaks;
                each(Output::Unit(AccessUnit { time, key, codec, data: data.into() }));
            }
            Err(error) => {
                self.waits = true;
                // Packets that are missing may have had the configuration.
                each(Output::Broken((!self.uncertain).then_some(error)));
            }
        }
    }
}

/// What the tests of payload formats share.
#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    /// Pushes an access unit's packets but for those that `lose` names.
    pub(crate) fn push(
        depacketizer: &mut Depacketizer,
        time: u32,
        payloads: &[Arc<[u8]>],
        lose: &[usize],
    ) -> Vec<Output> {
        let mut outputs = Vec::new();
        for (index, payload) in payloads.iter().enumerate() {
            if lose.contains(&index) {
                depacketizer.lose();
            } else {
                let marker = index + 1 == payloads.len();
                depacketizer.push(time, marker, payload, |output| outputs.push(output));
            }
        }
        outputs
    }

    /// The access unit among these.
    pub(crate) fn unit(outputs: Vec<Output>) -> Option<AccessUnit> {
        outputs.into_iter().find_map(|output| match output {
            Output::Unit(unit) => Some(unit),
            Output::Broken(_) => None,
        })
    }

    /// The access unit of all these packets, none of which is longer than `most`.
    pub(crate) fn unit_of_all(
        mut depacketizer: Depacketizer,
        packets: &[Arc<[u8]>],
        most: usize,
    ) -> AccessUnit {
        assert!(packets.iter().all(|packet| packet.len() <= most));
        unit(push(&mut depacketizer, 0, packets, &[])).unwrap()
    }

    /// For each of some pictures, the packet that is lost. Many pictures have no packet of that number.
    pub(crate) fn losses() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(0usize..9, 1..40)
    }

    /// Checks that each unit that goes out follows a whole keyframe. Every fifth picture is a
    /// keyframe.
    pub(crate) fn passes_what_can_be_decoded(
        mut depacketizer: Depacketizer,
        [key, frame]: [Vec<Arc<[u8]>>; 2],
        losses: Vec<usize>,
    ) -> Result<(), TestCaseError> {
        let mut decodes = false;
        for (number, loss) in losses.into_iter().enumerate() {
            let is_key = number % 5 == 0;
            let packets = if is_key { &key } else { &frame };
            decodes = loss >= packets.len() && (decodes || is_key);
            let outputs = push(&mut depacketizer, number as u32, packets, &[loss]);
            // The last packet's loss shows with the next access unit.
            prop_assert_eq!(unit(outputs).is_some(), decodes);
        }
        Ok(())
    }

    /// Packets of any content: their times, markers and payloads.
    pub(crate) fn any_packets() -> impl Strategy<Value = Vec<(u32, bool, Vec<u8>)>> {
        let payload = prop::collection::vec(any::<u8>(), 0..40);
        prop::collection::vec((0..3u32, any::<bool>(), payload), 0..40)
    }
}
