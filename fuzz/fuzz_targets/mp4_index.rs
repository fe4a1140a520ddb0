//! An MP4 file from anyone, or a header and a media segment.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use media::mp4::{Index, ReadError, Reader};

fuzz_target!(|data: &[u8]| {
    let data = Bytes::copy_from_slice(data);
    walk(Index::read(&data), &data);
    // The same bytes cut in two: a header and its segment.
    let half = data.len() / 2;
    let (header, segment) = (data.slice(..half), data.slice(half..));
    walk(Index::read_segment(&segment, &header), &segment);
});

fn walk(index: Result<Index, ReadError>, data: &Bytes) {
    let index = match index {
        Ok(index) => index,
        Err(ReadError::Format(_)) => return,
        Err(error) => panic!("read past the end: {error}"),
    };
    for track in &index.tracks {
        let table = &track.samples;
        assert!(u64::from(table.len()) <= data.len() as u64);
        let middle = table.len() / 2;
        assert_eq!(table.iter_from(middle).next(), table.get(middle));
        if let Some(sync) = table.sync_at_or_before(middle) {
            assert!(sync <= middle && table.get(sync).is_some_and(|sample| sample.sync));
        }
        if let Some(sync) = table.sync_at_or_after(middle) {
            assert!(sync >= middle && table.get(sync).is_some_and(|sample| sample.sync));
        }
        assert!(table.at_dts(0).is_none_or(|number| number < table.len()));
    }
    for read in Reader::new(index.merge(0..index.tracks.len()), data).take(1000) {
        let _ = read;
    }
}
