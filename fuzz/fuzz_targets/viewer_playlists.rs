//! Playlists and manifests of any server: a player reads them, or reports the line with the error.
#![no_main]

use headwater_fuzz::within;
use libfuzzer_sys::fuzz_target;
use viewer::hls::{self, Playlist};
use viewer::mpd;
use viewer::url::Url;

/// Memory for reading one, and memory per byte of it.
const MEMORY: (usize, usize) = (64 << 10, 256);

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let base = Url::parse("http://127.0.0.1:8080/live/x/index.m3u8").expect("an address");
    within(MEMORY.0 + MEMORY.1 * text.len(), || {
        playlist(text, &base);
        manifest(text, &base);
        if let Ok(url) = Url::parse(text) {
            let again = Url::parse(&url.to_string()).expect("reads what was written");
            assert_eq!(again, url);
        }
    });
});

fn playlist(text: &str, base: &Url) {
    match hls::parse(text) {
        Err(_) => {}
        Ok(Playlist::Multivariant(multivariant)) => {
            for variant in &multivariant.variants {
                let _ = base.resolve(variant.uri);
            }
        }
        Ok(Playlist::Media(media)) => {
            let open = media.open_number();
            assert!(open >= media.first());
            for segment in media.segments.iter().chain([&media.open]) {
                assert!(media.parts.get(segment.parts.clone()).is_some());
                assert!(segment.duration >= 0);
                let _ = base.resolve(segment.place.uri);
            }
        }
    }
}

fn manifest(text: &str, base: &Url) {
    let Ok(manifest) = mpd::parse(text) else { return };
    for representation in manifest.periods.iter().flat_map(|period| &period.representations) {
        for url in &representation.base {
            let _ = base.resolve(url);
        }
        let Some(template) = &representation.template else { continue };
        for run in template.timeline.iter().flatten() {
            assert!(run.duration > 0);
            let _ = run.end();
        }
        for pattern in [&template.initialization, &template.media].into_iter().flatten() {
            let _ = base.resolve(&representation.expand(pattern, u64::MAX, u64::MAX));
        }
    }
}
