//! The samples of titles, for deliveries without segments.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::{Media, corpus, made};
use vod::Sample;

/// A sample that is looked for must be where the list of its segment has it.
fn find_samples_without_the_list(media: &Media) {
    let library = media.library();
    for path in media.every_mp4() {
        let Ok(title) = library.title(&path) else { continue };
        let all = title.chosen();
        for tracks in [&all[..1], &all[..]] {
            for n in 0..title.tracks[tracks[0]].segment_count() {
                let samples = title.samples(tracks, n).unwrap();
                assert_eq!(title.first_sample(tracks, n), samples.first().copied(), "{path} {n}");
                let leading = |sample: &&Sample| sample.track == tracks[0];
                for dts in samples.iter().filter(leading).flat_map(|at| [at.dts - 1, at.dts]) {
                    let is_early = |sample: &Sample| leading(&sample) && sample.dts <= dts;
                    let found = samples.iter().rposition(is_early).map(|at| (at, samples[at]));
                    assert_eq!(title.last_sample(tracks, n, dts), found, "{path} {n} {dts}");
                }
            }
            assert!(title.first_sample(tracks, u32::MAX).is_none());
            assert!(title.last_sample(tracks, u32::MAX, i64::MAX).is_none());
        }
    }
}

#[test]
#[ignore = "corpus"]
fn corpus_samples_are_found_without_the_list() {
    find_samples_without_the_list(&corpus());
}

#[test]
fn samples_are_found_without_the_list() {
    find_samples_without_the_list(&made());
}

/// The samples of all segments from `Title::samples` must be those of the CMAF segments, each
/// exactly once.
fn compare_samples_with_segments(media: &Media) {
    let library = media.library();
    for path in media.every_mp4() {
        let Ok(title) = library.title(&path) else { continue };
        let chosen = title.chosen();
        let leading = &title.tracks[chosen[0]];
        let count = leading.segment_count();
        let mut all = Vec::new();
        for n in 0..count {
            let samples = title.samples(&chosen, n).unwrap();
            let first = samples.iter().find(|sample| sample.track == chosen[0]).unwrap();
            assert!(first.sync, "{path}");
            all.extend(samples);
        }
        assert!(title.samples(&chosen, count).is_none());
        let seconds = |sample: &Sample| {
            let timescale = title.tracks[sample.track].media.timescale;
            sample.dts as f64 / f64::from(timescale)
        };
        let ordered = all.windows(2).all(|pair| seconds(&pair[0]) <= seconds(&pair[1]) + 1e-9);
        assert!(ordered, "{path}");
        let read = title.read(&all).unwrap();
        for position in chosen {
            let ours = all.iter().zip(&read).filter(|(sample, _)| sample.track == position);
            let ours: Vec<_> = ours.map(|(_, sample)| sample.clone()).collect();
            let segments = support::chunks(&title.tracks[position]);
            let theirs: Vec<_> = segments.into_iter().flat_map(|chunk| chunk.samples).collect();
            assert_eq!(ours.len(), theirs.len(), "{path}");
            for (ours, theirs) in ours.iter().zip(&theirs) {
                assert_eq!((ours.dts, ours.cts, ours.sync), (theirs.dts, theirs.cts, theirs.sync));
                assert_eq!(ours.data, theirs.data, "{path}");
            }
        }
    }
}

#[test]
fn samples_are_those_of_the_segments_in_the_order_of_their_decoding() {
    compare_samples_with_segments(&made());
}

#[test]
#[ignore = "corpus"]
fn corpus_samples_are_those_of_the_segments_in_the_order_of_their_decoding() {
    compare_samples_with_segments(&corpus());
}
