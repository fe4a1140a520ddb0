//! Puts capture stamps into published video.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use bytes::Bytes;
use media::Codec;
use media::codec::{av1, avc, hevc};
use media::flv::{Body, CodecId, Packet, parse_video};

/// Puts a stamp of the current time into a video access unit.
///
/// # Errors
/// The codec has no place for a stamp, or the access unit is broken.
pub(super) fn stamp(codec: &Codec, access_unit: &[u8]) -> anyhow::Result<Vec<u8>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    media::stamp::insert(codec, access_unit, now).context("cannot be stamped")
}

/// Stamps FLV tags. It remembers the codec configurations of the tags before.
#[derive(Debug, Default)]
pub(super) struct Stamper {
    /// Keyed by track number.
    codecs: BTreeMap<u8, Codec>,
}

impl Stamper {
    /// Returns a video tag's payload with a stamp of the current time; `None` if the tag holds no
    /// access unit.
    ///
    /// # Errors
    /// The codec has no place for a stamp, or the tag has several tracks or is broken.
    pub(super) fn tag(&mut self, payload: &Bytes) -> anyhow::Result<Option<Vec<u8>>> {
        let mut packets = Vec::new();
        parse_video(payload, &mut packets)?;
        let count = packets.len();
        for Packet { track, codec, body, at, .. } in packets {
            match body {
                Body::SequenceStart(record) => self.configure(track, codec, record)?,
                Body::Frame { data, .. } => {
                    if count > 1 {
                        bail!("tags of several tracks cannot be stamped");
                    }
                    let known = match (self.codecs.get(&track), codec) {
                        (Some(known), _) => known,
                        // AV1's configuration may come with the first frame.
                        (None, CodecId::Fourcc(name)) if &name == b"av01" => {
                            let Some(config) = av1::Config::from_temporal_unit(&data)? else {
                                return Ok(None);
                            };
                            self.codecs.entry(track).or_insert(Codec::Av1(config))
                        }
                        (None, _) => bail!("{codec} without a sequence header that can be read"),
                    };
                    let prefix = usize::try_from(at).ok().and_then(|at| payload.get(..at));
                    let prefix = prefix.unwrap_or_default();
                    return Ok(Some([prefix, &stamp(known, &data)?].concat()));
                }
                Body::Ignored if matches!(codec, CodecId::Video(_)) => {
                    bail!("{codec} has no place for stamps");
                }
                Body::SequenceEnd | Body::Ignored => {}
            }
        }
        Ok(None)
    }

    fn configure(&mut self, track: u8, codec: CodecId, record: Bytes) -> anyhow::Result<()> {
        let CodecId::Fourcc(name) = codec else { return Ok(()) };
        let codec = match &name {
            // Some encoders send an empty record first.
            _ if record.is_empty() => return Ok(()),
            b"avc1" => Codec::Avc(avc::Config::parse(record)?),
            b"hvc1" => Codec::Hevc(hevc::Config::parse(record)?),
            b"av01" => Codec::Av1(av1::Config::parse(record)?),
            _ => bail!("{codec} has no place for stamps"),
        };
        self.codecs.insert(track, codec);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use media::flv::Packetizer;
    use media::{Sample, stamp};

    use super::*;

    #[test]
    fn tags_of_every_form_are_stamped_behind_their_prefix() {
        let record = Bytes::from(testkit::avc_record(31));
        let codec = Codec::Avc(avc::Config::parse(record).unwrap());
        let data = Bytes::from_static(&[0, 0, 0, 3, 0x65, 1, 2]);
        let sample = Sample { dts: 0, cts: 40, duration: 0, sync: true, data: data.clone() };
        // The legacy form, and a multitrack packet with one track.
        for track in [0, 3] {
            let packetizer = Packetizer::new(track, &codec, 1000).unwrap();
            let mut stamper = Stamper::default();
            let plain = packetizer.sample(&sample).unwrap().payload();
            let error = stamper.tag(&plain).unwrap_err().to_string();
            assert!(error.contains("sequence header"), "{error}");
            let header = packetizer.sequence_header(0).unwrap().payload();
            assert_eq!(stamper.tag(&header).unwrap(), None);
            let stamped = stamper.tag(&plain).unwrap().unwrap();
            assert!(stamp::find(&stamped).is_some());
            let prefix = plain.len() - data.len();
            assert_eq!(stamped[..prefix], plain[..prefix]);
            assert_eq!(*stamp::without(&codec, &stamped[prefix..]), data[..]);
            let end = packetizer.sequence_end(0).unwrap().payload();
            assert_eq!(stamper.tag(&end).unwrap(), None);
        }
    }

    #[test]
    fn a_codec_without_a_place_for_stamps_is_refused() {
        let sorenson = Bytes::from_static(&[0x12, 0, 0, 0x84]);
        let error = Stamper::default().tag(&sorenson).unwrap_err().to_string();
        assert!(error.contains("Sorenson H.263"), "{error}");
    }
}
