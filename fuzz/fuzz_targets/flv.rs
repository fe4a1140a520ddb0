//! FLV files from anyone: every readable tag is demuxed, and the results must be sound and bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use media::flv::{Demuxer, Event, MAX_CONFIGURATION, MAX_TRACKS, Packetizer, Reader};

fuzz_target!(|file: &[u8]| {
    let mut reader = Reader::new();
    let mut demuxer = Demuxer::new();
    let mut writers = Vec::new();
    for bytes in file.chunks(97) {
        reader.handle_bytes(bytes);
        while let Ok(Some(tag)) = reader.poll_tag() {
            demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
            let mut events = 0;
            while let Some(event) = demuxer.poll_event() {
                events += 1;
                assert!(events <= 3 * MAX_TRACKS, "{events} events of one tag");
                match event {
                    Event::Track { track, codec } => {
                        assert!(codec.record().len() <= MAX_CONFIGURATION);
                        let writer = Packetizer::new(track.number, &codec, 1000);
                        let writer = writer.expect("every codec read can be written");
                        writers.retain(|(id, _)| *id != track);
                        writers.push((track, writer));
                        assert!(writers.len() <= MAX_TRACKS, "{} tracks", writers.len());
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
