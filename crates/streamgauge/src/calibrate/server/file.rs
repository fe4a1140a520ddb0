//! An MP4 with its index in front of the media, as a file of known length.

use anyhow::Context;
use bytes::Bytes;
use media::Sample;
use mp4_atom::{
    Decode, Encode, Ftyp, Moov, Stco, Stsc, StscEntry, Stss, Stsz, StszSamples, Stts, SttsEntry,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::session::Session;

/// Sends the index, and the media as they come.
pub(super) async fn serve(session: &Session, socket: &mut TcpStream) -> anyhow::Result<()> {
    session.delay().await;
    let pieces = (0..session.script.pieces()).map(|piece| session.samples(piece));
    let pieces = pieces.collect::<anyhow::Result<Vec<_>>>()?;
    let samples = pieces.concat();
    let front = front(&session.stream.header()?, &samples)?;
    let length = front.len() + data(&samples);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    session.send(socket, &front).await?;
    for (piece, samples) in (0..).zip(&pieces) {
        session.wait_for(piece).await;
        for sample in samples {
            session.send(socket, &sample.data).await?;
        }
    }
    Ok(())
}

/// Bytes of all samples.
fn data(samples: &[Sample]) -> usize {
    samples.iter().map(|sample| sample.data.len()).sum()
}

/// The bytes in front of the samples: `ftyp`, `moov` and the head of `mdat` (ISO/IEC 14496-12). `header` is the CMAF
/// header of the only track; its `moov` becomes one of samples that lie behind each other.
fn front(header: &Bytes, samples: &[Sample]) -> anyhow::Result<Vec<u8>> {
    let mut rest: &[u8] = header;
    let (ftyp, mut moov) = (Ftyp::decode(&mut rest)?, Moov::decode(&mut rest)?);
    let duration = samples.iter().map(|sample| u64::from(sample.duration)).sum();
    let count = u32::try_from(samples.len())?;
    moov.mvex = None;
    moov.mvhd.duration = duration;
    let trak = moov.trak.first_mut().context("a header without a track")?;
    trak.tkhd.duration = duration;
    trak.mdia.mdhd.duration = duration;
    let numbered = (1..).zip(samples);
    let sizes = samples.iter().map(|sample| u32::try_from(sample.data.len()));
    let sample_delta = samples.first().context("a file without samples")?.duration;
    let stbl = &mut trak.mdia.minf.stbl;
    stbl.stts = Stts { entries: vec![SttsEntry { sample_count: count, sample_delta }] };
    stbl.stss =
        Some(Stss { entries: numbered.filter(|(_, of)| of.sync).map(|(at, _)| at).collect() });
    stbl.stsz =
        Stsz { samples: StszSamples::Different { sizes: sizes.collect::<Result<_, _>>()? } };
    let chunk = StscEntry { first_chunk: 1, samples_per_chunk: count, sample_description_index: 1 };
    stbl.stsc = Stsc { entries: vec![chunk] };
    // The size of the index does not depend on where the samples are.
    stbl.stco = Some(Stco { entries: vec![0] });
    let encode = |moov: &Moov| -> anyhow::Result<Vec<u8>> {
        let mut front = Vec::new();
        ftyp.encode(&mut front)?;
        moov.encode(&mut front)?;
        front.extend_from_slice(&u32::try_from(8 + data(samples))?.to_be_bytes());
        front.extend_from_slice(b"mdat");
        Ok(front)
    };
    let offset = u32::try_from(encode(&moov)?.len())?;
    if let Some(trak) = moov.trak.first_mut() {
        trak.mdia.minf.stbl.stco = Some(Stco { entries: vec![offset] });
    }
    encode(&moov)
}

#[cfg(test)]
mod tests {
    use std::io;

    use media::mp4::{Index, Source};

    use super::*;
    use crate::calibrate::stream::Stream;

    struct Memory(Bytes);

    impl Source for Memory {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            let from = usize::try_from(offset).unwrap();
            Ok(self.0.slice(from..from + len))
        }
    }

    #[test]
    fn the_index_says_where_each_picture_is() {
        let stream = Stream::new(20).unwrap();
        let samples: Vec<_> =
            (0..20).map(|at| stream.sample(at, Some(7), false).unwrap()).collect();
        let mut file = front(&stream.header().unwrap(), &samples).unwrap();
        samples.iter().for_each(|sample| file.extend_from_slice(&sample.data));
        let source = Memory(file.into());
        let index = Index::read(&source).unwrap();
        assert_eq!(index.duration().as_millis(), 800);
        let [track] = &index.tracks[..] else { panic!("{index:#?}") };
        assert_eq!((&track.problem, track.samples.len()), (&None, 20));
        for (found, sample) in track.samples.iter().zip(&samples) {
            assert_eq!((found.dts, found.sync), (sample.dts, sample.sync));
            let data = source.read_at(found.offset, found.size as usize).unwrap();
            assert_eq!(data, sample.data);
        }
    }
}
