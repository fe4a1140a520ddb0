//! Headers and chunks from any peer. What can be read is written again, and must read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use media::cmaf::{self, ChunkInfo};

fuzz_target!(|data: &[u8]| {
    let data = bytes::Bytes::copy_from_slice(data);
    let header = cmaf::read_header(&data).ok();
    if let Some(header) = &header {
        let tracks: Vec<_> = header.tracks.iter().collect();
        if let Ok(again) = cmaf::header(&tracks) {
            let again = cmaf::read_header(&again).expect("reads what was written");
            assert_eq!(again.tracks, header.tracks);
        }
    }
    for chunk in cmaf::chunks(&data, header.as_ref()).flatten() {
        let info = ChunkInfo {
            track_id: chunk.track_id,
            sequence_number: chunk.sequence_number,
            segment_start: None,
        };
        let mut out = Vec::new();
        if cmaf::write_chunk(&mut out, &info, &chunk.samples).is_ok() {
            let mut again = cmaf::chunks(&out.into(), None);
            let again = again.next().expect("is there").expect("reads what was written");
            assert_eq!(again.samples, chunk.samples);
        }
    }
});
