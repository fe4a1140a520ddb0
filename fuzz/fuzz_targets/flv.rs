//! FLV files from anyone: every tag that can be read is demuxed, and what comes out is sound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use media::flv::{Demuxer, Event, Packetizer, Reader};

fuzz_target!(|file: &[u8]| {
    let mut reader = Reader::new();
    let mut demuxer = Demuxer::new();
    let mut writers = Vec::new();
    for bytes in file.chunks(97) {
        reader.handle_bytes(bytes);
        while let Ok(Some(tag)) = reader.poll_tag() {
            demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
            while let Some(event) = demuxer.poll_event() {
                match event {
                    Event::Track { track, codec } => {
                        let writer = Packetizer::new(track.number, &codec, 1000);
                        let writer = writer.expect("every codec read can be written");
                        writers.retain(|(id, _)| *id != track);
                        writers.push((track, writer));
                    }
                    Event::Sample { track, sample, .. } => {
                        let writer = writers.iter().find(|(id, _)| *id == track);
                        let (_, writer) = writer.expect("a track comes before its samples");
                        let message = writer.sample(&sample).expect("it came out of a tag");
                        assert!(message.payload().ends_with(&sample.data));
                    }
                    _ => {}
                }
            }
        }
    }
    let _ = reader.finish();
});
