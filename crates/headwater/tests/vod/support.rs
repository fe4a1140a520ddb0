//! A server over a folder of files, titles as a player reads them from each manifest, and ffmpeg as
//! a judge of their media.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use media::cmaf;
use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::{self as tag, Tag};
use quick_m3u8::{HlsLine, Reader};
use testkit::Server;
use testkit::http::Client;
pub(crate) use testkit::{clip as media, ffmpeg};

/// The longest wait in these tests, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Starts a server of the files in `root`.
#[track_caller]
pub(crate) fn server(root: &Path) -> Server {
    let binary = env!("CARGO_BIN_EXE_headwater");
    Server::start(binary, [OsStr::new("--vod"), root.as_os_str()])
}

/// Fetches a text. Fails if the answer is not 200.
#[track_caller]
pub(crate) fn text(client: &mut Client, path: &str) -> String {
    String::from_utf8(bytes(client, path).to_vec()).unwrap()
}

/// Fetches a body. Fails if the answer is not 200.
#[track_caller]
pub(crate) fn bytes(client: &mut Client, path: &str) -> Bytes {
    let answer = client.get(path, &[]);
    assert_eq!(answer.status(), 200, "{path}: {answer:?}");
    answer.body.into()
}

/// Makes a connection that is kept alive.
#[track_caller]
pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(server.http, LIMIT).unwrap()
}

/// One rendition as a manifest describes it: its media, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Listed {
    /// Name of the track, such as `v0`, `a0` or `t0`.
    pub(crate) name: String,
    pub(crate) language: Option<String>,
    pub(crate) codecs: String,
    pub(crate) bandwidth: u64,
    /// Path of the header. WebVTT has none.
    pub(crate) header: Option<String>,
    /// Paths of the segments with their durations in seconds.
    pub(crate) segments: Vec<(String, f64)>,
}

impl Listed {
    /// The rendition's bytes: its header and all its segments, as a player concatenates them.
    #[track_caller]
    pub(crate) fn fetch(&self, client: &mut Client) -> Vec<u8> {
        let mut all = Vec::new();
        for path in self.header.iter().chain(self.segments.iter().map(|(path, _)| path)) {
            all.extend(bytes(client, path));
        }
        all
    }

    pub(crate) fn duration(&self) -> f64 {
        self.segments.iter().map(|(_, duration)| duration).sum()
    }
}

/// A title as HLS describes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hls {
    pub(crate) index: String,
    pub(crate) video: Vec<Listed>,
    pub(crate) audio: Vec<Listed>,
    pub(crate) text: Vec<Listed>,
    pub(crate) i_frames: Vec<Listed>,
}

impl Hls {
    pub(crate) fn media(&self) -> impl Iterator<Item = &Listed> {
        self.video.iter().chain(&self.audio)
    }
}

/// Reads the tags (`Ok`) and URIs (`Err`) of a playlist, with a parser of another project.
fn lines(text: &str, mut each: impl FnMut(Result<Tag<'_>, &str>)) {
    let options = ParsingOptionsBuilder::new().with_parsing_for_all_tags().build();
    let mut reader = Reader::from_str(text, options);
    while let Some(line) = reader.read_line().unwrap_or_else(|error| panic!("{error}: {text}")) {
        match line {
            HlsLine::Uri(uri) => each(Err(&uri)),
            HlsLine::KnownTag(KnownTag::Hls(tag)) => each(Ok(tag)),
            other => panic!("unexpected {other:?} in {text}"),
        }
    }
}

/// `uri` relative to the folder of `base`.
pub(crate) fn join(base: &str, uri: &str) -> String {
    let folder = base.split('?').next().unwrap().rsplit_once('/').unwrap().0;
    format!("{folder}/{uri}")
}

/// The track's name in a path: `v0` in `/vod/x.mp4/v0/media.m3u8?v=1`.
fn track_name(path: &str) -> String {
    path.rsplit('/').nth(1).unwrap().to_owned()
}

/// Reads `/vod/TITLE/index.m3u8` and every playlist it names.
#[track_caller]
pub(crate) fn read_hls(client: &mut Client, title: &str) -> Hls {
    let path = format!("/vod/{title}/index.m3u8");
    let index = text(client, &path);
    let mut hls = Hls { index: index.clone(), ..Hls::default() };
    let mut variant: Option<Listed> = None;
    let mut own: Option<Option<String>> = None;
    let mut playlists: Vec<(char, Listed, String)> = Vec::new();
    lines(&index, |line| match line {
        Ok(Tag::StreamInf(read)) => {
            assert!(read.average_bandwidth().is_some_and(|mean| mean <= read.bandwidth()));
            variant = Some(Listed {
                language: own.clone().flatten(),
                codecs: read.codecs().unwrap().to_owned(),
                bandwidth: read.bandwidth(),
                ..Listed::default()
            });
        }
        Ok(Tag::Media(read)) => {
            let text = read.media_type() == tag::EnumeratedString::Known(tag::MediaType::Subtitles);
            let listed =
                Listed { language: read.language().map(str::to_owned), ..Listed::default() };
            match read.uri() {
                Some(uri) => playlists.push((if text { 't' } else { 'a' }, listed, uri.to_owned())),
                // Without a URI the variants themselves contain this audio.
                None => assert!(own.replace(listed.language).is_none(), "{index}"),
            }
        }
        Ok(Tag::IFrameStreamInf(read)) => {
            let listed = Listed {
                codecs: read.codecs().unwrap().to_owned(),
                bandwidth: read.bandwidth(),
                ..Listed::default()
            };
            playlists.push(('i', listed, read.uri().to_owned()));
        }
        Ok(Tag::M3u(_) | Tag::Version(_) | Tag::IndependentSegments(_)) => {}
        Ok(other) => panic!("{other:?} in {index}"),
        Err(uri) => playlists.push(('v', variant.take().expect("a variant"), uri.to_owned())),
    });
    for (kind, mut listed, uri) in playlists {
        let path = join(&path, &uri);
        listed.name = track_name(&path);
        read_media_playlist(client, &path, kind == 'i', &mut listed);
        match kind {
            // Audio alone is a variant too.
            'v' if listed.name.starts_with('a') => hls.audio.push(listed),
            'v' => hls.video.push(listed),
            'a' => hls.audio.push(listed),
            't' => hls.text.push(listed),
            _ => hls.i_frames.push(listed),
        }
    }
    hls.audio.sort_by(|a, b| a.name.cmp(&b.name));
    hls
}

#[track_caller]
fn read_media_playlist(client: &mut Client, path: &str, i_frames: bool, listed: &mut Listed) {
    let playlist = text(client, path);
    let (mut duration, mut longest, mut target) = (0.0, 0f64, 0);
    let (mut vod, mut ended, mut only_i_frames) = (false, false, false);
    lines(&playlist, |line| match line {
        Ok(Tag::Inf(read)) => duration = read.duration(),
        Ok(Tag::Map(read)) => {
            assert!(listed.header.replace(join(path, read.uri())).is_none(), "{playlist}");
        }
        Ok(Tag::Targetduration(read)) => target = read.target_duration(),
        Ok(Tag::PlaylistType(_)) => vod = true,
        Ok(Tag::Endlist(_)) => ended = true,
        Ok(Tag::IFramesOnly(_)) => only_i_frames = true,
        Ok(Tag::M3u(_) | Tag::Version(_) | Tag::MediaSequence(_) | Tag::IndependentSegments(_)) => {
        }
        Ok(other) => panic!("{other:?} in {playlist}"),
        Err(uri) => {
            longest = longest.max(duration);
            listed.segments.push((join(path, uri), duration));
        }
    });
    assert!(vod && ended && only_i_frames == i_frames, "{playlist}");
    assert!(longest.round() as u64 <= target, "{longest} of {target}: {playlist}");
    assert!(!listed.segments.is_empty(), "{playlist}");
}

/// A title as DASH describes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dash {
    pub(crate) xml: String,
    /// Duration in seconds.
    pub(crate) duration: f64,
    pub(crate) sets: Vec<Set>,
}

/// An adaptation set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Set {
    pub(crate) content: String,
    pub(crate) role: Option<String>,
    pub(crate) aligned: bool,
    pub(crate) renditions: Vec<Listed>,
}

impl Dash {
    pub(crate) fn of(&self, content: &str) -> Vec<&Listed> {
        let sets = self.sets.iter().filter(|set| set.content == content);
        sets.flat_map(|set| &set.renditions).collect()
    }
}

/// Reads `/vod/TITLE/manifest.mpd` with a parser of another project.
#[track_caller]
pub(crate) fn read_dash(client: &mut Client, title: &str) -> Dash {
    let path = format!("/vod/{title}/manifest.mpd");
    let xml = text(client, &path);
    let mpd = dash_mpd_core::parse(&xml).unwrap_or_else(|error| panic!("{error}: {xml}"));
    assert_eq!(mpd.mpdtype.as_deref(), Some("static"));
    assert_eq!(mpd.periods.len(), 1);
    let mut dash = Dash {
        duration: mpd.mediaPresentationDuration.unwrap().as_secs_f64(),
        xml: xml.clone(),
        sets: Vec::new(),
    };
    let mut start = None;
    for set in &mpd.periods[0].adaptations {
        let mut renditions = Vec::new();
        for read in &set.representations {
            let mut listed = Listed {
                name: read.id.clone().unwrap(),
                language: set.lang.clone(),
                codecs: read.codecs.clone().unwrap_or_default(),
                bandwidth: read.bandwidth.unwrap(),
                ..Listed::default()
            };
            let template = read.SegmentTemplate.as_ref().or(set.SegmentTemplate.as_ref());
            if let Some(template) = template {
                let fill = |pattern: &Option<String>, number: u64| {
                    let filled = pattern.as_ref().unwrap();
                    let filled = filled.replace("$RepresentationID$", &listed.name);
                    join(&path, &filled.replace("$Number$", &number.to_string()))
                };
                listed.header = Some(fill(&template.initialization, 0));
                let timescale = template.timescale.unwrap() as f64;
                // The offset must be the same moment in every timescale, so that tracks stay
                // together.
                let offset = template.presentationTimeOffset.unwrap_or(0) as f64 / timescale;
                let first = *start.get_or_insert(offset);
                assert!((offset - first).abs() < 1e-9, "{offset} s and {first} s: {xml}");
                let mut number = template.startNumber.unwrap();
                for s in &template.SegmentTimeline.as_ref().unwrap().segments {
                    for _ in 0..=s.r.unwrap_or(0) {
                        let path = fill(&template.media, number);
                        listed.segments.push((path, s.d as f64 / timescale));
                        number += 1;
                    }
                }
            } else {
                let url = join(&path, &read.BaseURL[0].base);
                listed.segments.push((url, dash.duration));
            }
            renditions.push(listed);
        }
        dash.sets.push(Set {
            content: set.contentType.clone().unwrap(),
            role: set.Role.first().and_then(|role| role.value.clone()),
            aligned: set.segmentAlignment == Some(true),
            renditions,
        });
    }
    dash
}

/// Number of samples in a header and its segments, by track ID.
#[track_caller]
pub(crate) fn samples(fetched: Vec<u8>) -> BTreeMap<u32, usize> {
    let fetched = Bytes::from(fetched);
    let header = cmaf::read_header(&fetched).unwrap();
    let mut counts = BTreeMap::new();
    for chunk in cmaf::chunks(&fetched, Some(&header)) {
        let chunk = chunk.unwrap();
        *counts.entry(chunk.track_id).or_default() += chunk.samples.len();
    }
    counts
}

/// Hash of each decoded video or audio frame of a stream, in order. The hash function is a fast
/// one, because the frames have hundreds of megabytes.
#[track_caller]
pub(crate) fn decoded(input: &str, options: &[&str], map: &str) -> Vec<String> {
    all_decoded(input, options, &[map]).remove(0)
}

/// Like [`decoded`], for several streams at once.
#[track_caller]
pub(crate) fn all_decoded(input: &str, options: &[&str], maps: &[&str]) -> Vec<Vec<String>> {
    let args = ["-fps_mode", "passthrough", "-f", "framehash", "-hash", "murmur3", "-"];
    hashes(&ffmpeg(options.iter().chain(&["-i", input]).chain(&mapped(maps)).chain(&args)), maps)
}

/// MD5 of each access unit of a stream, undecoded, in order.
#[track_caller]
pub(crate) fn units(input: &str, map: &str) -> Vec<String> {
    all_units(input, &[map]).remove(0)
}

/// Like [`units`], for several streams at once.
#[track_caller]
pub(crate) fn all_units(input: &str, maps: &[&str]) -> Vec<Vec<String>> {
    let args = ["-c", "copy", "-f", "framemd5", "-"];
    hashes(&ffmpeg(["-i", input].iter().chain(&mapped(maps)).chain(&args)), maps)
}

fn mapped<'a>(maps: &[&'a str]) -> Vec<&'a str> {
    maps.iter().flat_map(|map| ["-map", map]).collect()
}

/// Presentation time in seconds and MD5 of each access unit of a stream, undecoded, in order.
#[track_caller]
pub(crate) fn timed(input: &str, map: &str) -> Vec<(f64, String)> {
    let args = ["-copyts", "-i", input, "-map", map, "-c", "copy", "-f", "framemd5", "-"];
    let units = testkit::framehash(&ffmpeg(args));
    units.into_iter().map(|unit| (unit.pts_time(), unit.md5)).collect()
}

/// The hashes of each stream.
#[track_caller]
fn hashes(framehash: &[u8], maps: &[&str]) -> Vec<Vec<String>> {
    let mut hashes = vec![Vec::new(); maps.len()];
    for unit in testkit::framehash(framehash) {
        hashes[unit.stream_index as usize].push(unit.md5);
    }
    hashes
}
