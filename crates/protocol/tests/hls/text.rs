//! Playlists as text.

use protocol::hls::{
    Audio, IFrames, MediaPlaylist, MultivariantPlaylist, PlaylistType, Rounding, Segment, Skip,
    Subtitles, Variant,
};

use super::support::live;

#[test]
fn low_latency_playlist() {
    let mut playlist = live(4);
    playlist.segments[2].discontinuity = true;
    playlist.segments[2].map = Some("init.1.mp4".into());
    playlist.segments[3].map = Some("init.1.mp4".into());
    playlist.segments[3].gap = true;
    playlist.segments[3].parts.clear();
    playlist.open.as_mut().expect("is open").map = Some("init.1.mp4".into());
    playlist.discontinuity_sequence = 3;
    assert_eq!(
        playlist.render(Skip::No),
        "#EXTM3U\n\
         #EXT-X-VERSION:9\n\
         #EXT-X-TARGETDURATION:2\n\
         #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.500000,HOLD-BACK=6,\
         CAN-SKIP-UNTIL=12\n\
         #EXT-X-PART-INF:PART-TARGET=0.500000\n\
         #EXT-X-MEDIA-SEQUENCE:10\n\
         #EXT-X-DISCONTINUITY-SEQUENCE:3\n\
         #EXT-X-MAP:URI=\"init.0.mp4\"\n\
         #EXT-X-PROGRAM-DATE-TIME:2026-11-21T20:01:20.250Z\n\
         #EXTINF:2.000000,\n\
         10.m4s\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"11.0.m4s\",INDEPENDENT=YES\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"11.1.m4s\"\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"11.2.m4s\"\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"11.3.m4s\"\n\
         #EXTINF:2.000000,\n\
         11.m4s\n\
         #EXT-X-DISCONTINUITY\n\
         #EXT-X-MAP:URI=\"init.1.mp4\"\n\
         #EXT-X-PROGRAM-DATE-TIME:2026-11-21T20:01:24.250Z\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"12.0.m4s\",INDEPENDENT=YES\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"12.1.m4s\"\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"12.2.m4s\"\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"12.3.m4s\"\n\
         #EXTINF:2.000000,\n\
         12.m4s\n\
         #EXT-X-GAP\n\
         #EXTINF:2.000000,\n\
         13.m4s\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"14.0.m4s\",INDEPENDENT=YES\n\
         #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"14.1.m4s\"\n\
         #EXT-X-RENDITION-REPORT:URI=\"../a0/media.m3u8\",LAST-MSN=14,LAST-PART=0\n"
    );
}

#[test]
fn delta_update_leaves_out_what_ends_before_the_skip_boundary() {
    // 9 segments and an open part: 18.5 s. The first three end 12.5 s or more before the end.
    let text = live(9).render(Skip::Yes);
    assert!(text.contains("#EXT-X-MEDIA-SEQUENCE:10\n#EXT-X-SKIP:SKIPPED-SEGMENTS=3\n"), "{text}");
    assert!(!text.contains("\n12.m4s") && text.contains("\n13.m4s"), "{text}");
    assert!(!text.contains("EXT-X-MAP"), "the player has the header: {text}");
    assert_eq!(live(9).render(Skip::V2), text);

    let mut changed = live(9);
    for segment in &mut changed.segments[3..] {
        segment.map = Some("init.1.mp4".into());
    }
    let text = changed.render(Skip::Yes);
    assert!(text.contains("#EXT-X-MAP:URI=\"init.1.mp4\"\n"), "{text}");

    // Nothing to skip, or delta updates not offered: the whole playlist.
    assert_eq!(live(6).render(Skip::Yes), live(6).render(Skip::No));
    let not_offered = MediaPlaylist { delta_updates: false, ..live(9) };
    assert_eq!(not_offered.render(Skip::Yes), not_offered.render(Skip::No));
}

/// Audio segments begin at fractions of a millisecond, but players read dates in whole
/// milliseconds.
#[test]
fn a_date_is_written_once_and_in_an_update_where_rounding_costs_least() {
    let mut playlist = live(9);
    playlist.open.as_mut().expect("is open").date = None;
    for (n, segment) in playlist.segments.iter_mut().enumerate() {
        segment.date = Some(1_795_291_260_250_600 + n as u64 * 1_999_400);
        segment.duration = 179_946;
    }
    let dates = |text: &str| -> Vec<String> {
        let lines = text.lines();
        lines
            .filter_map(|line| line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(dates(&playlist.render(Skip::No)), ["2026-11-21T20:01:00.250Z"]);
    // The segments of an update begin 800, 200, 600, 0, 400 and 800 µs after milliseconds.
    let update = playlist.render(Skip::Yes);
    assert_eq!(dates(&update), ["2026-11-21T20:01:12.247Z"]);
    assert!(update.contains("12.247Z\n#EXT-X-PART:DURATION=0.500000,URI=\"16.0.m4s\""), "{update}");
    playlist.date_rounding = Rounding::Up;
    assert_eq!(dates(&playlist.render(Skip::No)), ["2026-11-21T20:01:00.251Z"]);
    // Where durations lead to another date, the date is written again.
    for (n, segment) in playlist.segments.iter_mut().enumerate() {
        segment.date = segment.date.map(|date| date + n as u64 / 4 * 9000);
    }
    let written =
        ["2026-11-21T20:01:00.251Z", "2026-11-21T20:01:08.258Z", "2026-11-21T20:01:16.264Z"];
    assert_eq!(dates(&playlist.render(Skip::No)), written);
}

#[test]
fn vod_playlist() {
    let segment = |msn: u64, duration| Segment {
        uri: format!("{msn}.m4s"),
        duration,
        map: Some("init.mp4".into()),
        date: None,
        discontinuity: false,
        gap: false,
        parts: vec![],
    };
    let playlist = MediaPlaylist {
        timescale: 30_000,
        target_duration: 4,
        media_sequence: 0,
        kind: Some(PlaylistType::Vod),
        independent_segments: true,
        i_frames_only: false,
        low_latency: None,
        blocking_reload: false,
        delta_updates: false,
        segments: vec![segment(0, 120_120), segment(1, 1001)],
        open: None,
        preload_hint: None,
        rendition_reports: vec![],
        ended: true,
        ..live(0)
    };
    assert_eq!(
        playlist.render(Skip::No),
        "#EXTM3U\n\
         #EXT-X-VERSION:6\n\
         #EXT-X-TARGETDURATION:4\n\
         #EXT-X-MEDIA-SEQUENCE:0\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n\
         #EXT-X-PLAYLIST-TYPE:VOD\n\
         #EXT-X-MAP:URI=\"init.mp4\"\n\
         #EXTINF:4.004000,\n\
         0.m4s\n\
         #EXTINF:0.033367,\n\
         1.m4s\n\
         #EXT-X-ENDLIST\n"
    );
    let mut i_frames = MediaPlaylist { i_frames_only: true, ..playlist };
    i_frames.segments.truncate(1);
    assert_eq!(
        i_frames.render(Skip::No),
        "#EXTM3U\n\
         #EXT-X-VERSION:6\n\
         #EXT-X-TARGETDURATION:4\n\
         #EXT-X-MEDIA-SEQUENCE:0\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n\
         #EXT-X-PLAYLIST-TYPE:VOD\n\
         #EXT-X-I-FRAMES-ONLY\n\
         #EXT-X-MAP:URI=\"init.mp4\"\n\
         #EXTINF:4.004000,\n\
         0.m4s\n\
         #EXT-X-ENDLIST\n"
    );
}

#[test]
fn multivariant_playlist() {
    let variant = |uri: &str, bandwidth| Variant {
        uri: uri.into(),
        bandwidth,
        average_bandwidth: Some(bandwidth / 2),
        codecs: vec!["avc1.64001f".into(), "mp4a.40.2".into()],
        resolution: Some((1280, 720)),
        frame_rate: Some((30_000, 1001)),
        audio: Some("audio".into()),
        subtitles: Some("text".into()),
    };
    let only_audio = Variant {
        uri: "a0/media.m3u8".into(),
        bandwidth: 130_000,
        codecs: vec!["mp4a.40.2".into()],
        ..Variant::default()
    };
    let mut playlist = MultivariantPlaylist {
        independent_segments: true,
        audio: vec![Audio {
            group: "audio".into(),
            name: "Director's \"cut\"".into(),
            language: Some("en".into()),
            default: true,
            channels: Some(2),
            uri: Some("a0/media.m3u8".into()),
        }],
        subtitles: vec![
            Subtitles {
                group: "text".into(),
                name: "Deutsch".into(),
                language: Some("de".into()),
                default: false,
                forced: true,
                uri: "t0/media.m3u8".into(),
            },
            Subtitles {
                group: "text".into(),
                name: "t1".into(),
                uri: "t1/media.m3u8".into(),
                ..Subtitles::default()
            },
        ],
        variants: vec![
            only_audio,
            variant("v1/media.m3u8", 1_000_000),
            variant("v0/media.m3u8", 3_000_000),
        ],
        i_frames: [("v1/iframes.m3u8", 90_000), ("v0/iframes.m3u8", 300_000)]
            .map(|(uri, bandwidth)| IFrames {
                uri: uri.into(),
                bandwidth,
                average_bandwidth: Some(bandwidth / 3),
                codecs: "avc1.64001f".into(),
                resolution: Some((1280, 720)),
            })
            .into(),
    };
    assert_eq!(
        playlist.render(),
        "#EXTM3U\n\
         #EXT-X-VERSION:6\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n\
         #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"Director's 'cut'\",LANGUAGE=\"en\",\
         DEFAULT=YES,AUTOSELECT=YES,CHANNELS=\"2\",URI=\"a0/media.m3u8\"\n\
         #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"text\",NAME=\"Deutsch\",LANGUAGE=\"de\",\
         DEFAULT=NO,AUTOSELECT=YES,FORCED=YES,URI=\"t0/media.m3u8\"\n\
         #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"text\",NAME=\"t1\",DEFAULT=NO,AUTOSELECT=YES,\
         URI=\"t1/media.m3u8\"\n\
         #EXT-X-STREAM-INF:BANDWIDTH=3000000,AVERAGE-BANDWIDTH=1500000,\
         CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=1280x720,FRAME-RATE=29.970,AUDIO=\"audio\",\
         SUBTITLES=\"text\"\n\
         v0/media.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH=1000000,AVERAGE-BANDWIDTH=500000,\
         CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=1280x720,FRAME-RATE=29.970,AUDIO=\"audio\",\
         SUBTITLES=\"text\"\n\
         v1/media.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH=130000,CODECS=\"mp4a.40.2\"\n\
         a0/media.m3u8\n\
         #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=300000,AVERAGE-BANDWIDTH=100000,\
         CODECS=\"avc1.64001f\",RESOLUTION=1280x720,URI=\"v0/iframes.m3u8\"\n\
         #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=90000,AVERAGE-BANDWIDTH=30000,\
         CODECS=\"avc1.64001f\",RESOLUTION=1280x720,URI=\"v1/iframes.m3u8\"\n"
    );
    let promised = playlist.render();
    playlist.independent_segments = false;
    assert_eq!(playlist.render(), promised.replace("#EXT-X-INDEPENDENT-SEGMENTS\n", ""));
}
