//! Writes the seeds of media and of RTMP into fuzz/seeds. The others are written by hand.
//!
//! `cargo run --manifest-path fuzz/Cargo.toml --example seeds`
//!
//! ffmpeg makes the media from its own sources: half a second of pictures that are 64 pixels wide.
//! Each seed is read here as its target reads it, before it is written.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use media::cmaf::{self, ChunkInfo, ReferenceTime, SegmentStart};
use media::codec::{Codec, av1};
use media::flv::{self, Demuxer, Event, Metadata, Packetizer};
use media::mp4::{Index, Reader};
use media::{Sample, Track};
use protocol::rtmp::amf0::{self, Value};
use protocol::rtmp::{
    Capabilities, ClientConfig, ClientSession, PlayStart, PublishKind, Purpose, ServerConfig,
    ServerEvent, ServerSession, Url,
};
use viewer::skim::{Flv, Mp4, SegmentStamps};

/// Bytes of C0, C1 and C2, and of S0, S1 and S2.
const HANDSHAKE: usize = 1 + 2 * 1536;

/// The first byte of an RTMP seed: pieces of 64 bytes, no handshake. A server accepts all requests,
/// and a client plays. With the second bit, a client publishes.
const PLAY: u8 = 0xfc;
const PUBLISH: u8 = PLAY | 2;

/// When the stamped pictures were captured, in microseconds since 1970.
const CAPTURED: u64 = 1_700_000_000_000_000;

const AVC: &str =
    "-c:v libx264 -preset ultrafast -crf 40 -g 3 -bf 1 -bsf:v filter_units=remove_types=6";
const HEVC: &str =
    "-c:v libx265 -preset ultrafast -crf 45 -x265-params log-level=none:keyint=3:info=0";
const AV1: &str = "-c:v libaom-av1 -cpu-used 8 -crf 60 -g 3";
const AAC: &str = "-c:a aac -ar 8000 -b:a 8k";
const OPUS: &str = "-c:a libopus -b:a 8k";
const FRAGMENTS: &str = "-movflags delay_moov+frag_keyframe+default_base_moof -f mp4";

fn main() {
    let films: Vec<(&str, Bytes, Bytes)> =
        [("avc-aac", AVC, AAC), ("hevc-aac", HEVC, AAC), ("av1-opus", AV1, OPUS)]
            .map(|(name, video, audio)| {
                let whole = film(&[video, audio, "-f mp4"]);
                (name, whole, film(&[video, audio, FRAGMENTS]))
            })
            .into();
    for (name, whole, fragments) in &films {
        cmaf_seed(name, fragments);
        mp4_seeds(name, whole, fragments);
        codec_seeds(name, whole);
        let flv = muxed(whole);
        flv_seed(name, &flv);
        viewer_seeds(name, whole, &flv);
    }
    title_seeds(&films);
    amf0_seeds();
    rtmp_seeds(&films[0].1);
}

/// Writes one seed.
fn save(target: &str, name: &str, seed: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), seed).expect("a file");
    println!("{target}/{name}: {} bytes", seed.len());
}

/// Half a second of pictures and sound, made with these options of ffmpeg.
fn film(options: &[&str]) -> Bytes {
    let folder = tempfile::tempdir().expect("a folder");
    let subtitles = folder.path().join("subtitles.srt");
    std::fs::write(&subtitles, "1\n00:00:00,100 --> 00:00:00,400\n<i>one</i>\n").expect("a file");
    let to = folder.path().join("film");
    let made = Command::new("ffmpeg")
        .args("-nostdin -v error -f lavfi -i smptebars=s=64x36:r=10:d=0.6".split(' '))
        .args("-f lavfi -i anullsrc=r=8000:cl=mono:d=0.6 -i".split(' '))
        .arg(subtitles)
        .args("-pix_fmt yuv420p -fflags +bitexact -flags +bitexact -map 0:v -map 1:a".split(' '))
        .args(options.iter().flat_map(|options| options.split(' ')))
        .arg(&to)
        .status();
    assert!(made.expect("ffmpeg").success(), "{options:?}");
    std::fs::read(to).expect("the film").into()
}

/// The tracks of a film, and their samples in the order of their decode times. All of it is a second
/// late, so that no decode time is negative.
fn read(film: &Bytes) -> (Vec<Track>, Vec<(usize, Sample)>) {
    let index = Index::read(film).expect("an MP4");
    let tracks: Vec<_> = index.tracks.iter().map(|track| track.track.clone()).collect();
    let samples = Reader::new(index.merge(0..tracks.len()), film).map(|read| {
        let mut read = read.expect("a sample");
        read.sample.dts += i64::from(tracks[read.track].timescale);
        (read.track, read.sample)
    });
    let samples = samples.collect();
    (tracks, samples)
}

fn cmaf_seed(name: &str, fragments: &Bytes) {
    let header = cmaf::read_header(fragments).expect("a header");
    assert_eq!(header.tracks.len(), 2);
    let chunks: Vec<_> = cmaf::chunks(fragments, Some(&header)).map(Result::unwrap).collect();
    assert!(chunks.len() >= 2 && chunks.iter().all(|chunk| !chunk.samples.is_empty()));
    save("cmaf", name, fragments);
}

/// A file, and a header and a segment: the target cuts its input in two.
fn mp4_seeds(name: &str, whole: &Bytes, fragments: &Bytes) {
    read(whole);
    save("mp4_index", name, whole);
    let moof = fragments.windows(4).position(|bytes| bytes == b"moof").expect("a fragment") - 4;
    let (mut header, mut segment) = (fragments[..moof].to_vec(), fragments[moof..].to_vec());
    // A box that readers skip makes both equally long.
    let length = header.len().max(segment.len()) + 8;
    for half in [&mut header, &mut segment] {
        half.extend(((length - half.len()) as u32).to_be_bytes());
        half.extend(b"free");
        half.resize(length, 0);
    }
    let index = Index::read_segment(&Bytes::from(segment.clone()), &Bytes::from(header.clone()));
    assert!(index.expect("a segment").tracks.iter().all(|track| track.samples.len() > 0));
    save("mp4_index", &format!("{name}-halves"), &[header, segment].concat());
}

/// The configuration of each track, and its first access unit.
fn codec_seeds(name: &str, film: &Bytes) {
    let (tracks, samples) = read(film);
    for (number, track) in tracks.iter().enumerate() {
        let first = samples.iter().find(|(track, _)| *track == number).expect("a sample");
        let kind = name.split('-').nth(number).expect("its codec");
        save("codec", kind, &track.codec.record());
        match &track.codec {
            Codec::Opus(config) => save("codec", "opus-head", &config.opus_head()),
            Codec::Av1(_) => {
                assert!(
                    av1::Config::from_temporal_unit(&first.1.data).expect("it parses").is_some()
                );
                save("codec", "av1-unit", &first.1.data);
            }
            Codec::Avc(_) | Codec::Hevc(_) => {
                save(
                    "codec",
                    &format!("{kind}-unit"),
                    &first.1.data[..first.1.data.len().min(400)],
                );
            }
            _ => {}
        }
    }
}

/// A film as FLV, with capture stamps in its video.
fn muxed(film: &Bytes) -> Vec<u8> {
    let (tracks, samples) = read(film);
    let mut file = flv::file_header(true, true).to_vec();
    let metadata = Metadata::describe(tracks.iter().map(|track| &track.codec));
    file.extend(flv::Message::metadata(0, &metadata).expect("metadata").tag());
    let mut writers = Vec::new();
    for track in &tracks {
        let writer = Packetizer::new(0, &track.codec, track.timescale).expect("a codec of FLV");
        file.extend(writer.sequence_header(0).expect("a header").tag());
        writers.push(writer);
    }
    for (number, sample) in &samples {
        let sample = stamped(&tracks[*number], sample);
        file.extend(writers[*number].sample(&sample).expect("a sample").tag());
    }
    file
}

/// A sample with a capture stamp, if it is video.
fn stamped(track: &Track, sample: &Sample) -> Sample {
    match media::stamp::insert(&track.codec, &sample.data, CAPTURED) {
        Ok(data) => Sample { data: data.into(), ..sample.clone() },
        Err(_) => sample.clone(),
    }
}

fn flv_seed(name: &str, file: &[u8]) {
    let (mut reader, mut demuxer) = (flv::Reader::new(), Demuxer::new());
    let (mut tracks, mut samples) = (0, 0);
    reader.handle_bytes(file);
    while let Some(tag) = reader.poll_tag().expect("FLV") {
        demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
        while let Some(event) = demuxer.poll_event() {
            tracks += usize::from(matches!(event, Event::Track { .. }));
            samples += usize::from(matches!(event, Event::Sample { .. }));
        }
    }
    assert!(tracks == 2 && samples > 6, "{tracks} tracks, {samples} samples");
    save("flv", name, file);
}

/// The video in stamped chunks, and the FLV. The first byte of a seed is the size of its pieces.
fn viewer_seeds(name: &str, film: &Bytes, flv: &[u8]) {
    let (tracks, samples) = read(film);
    let mut file = cmaf::header(&[&tracks[0]]).expect("a header").to_vec();
    let video = samples.iter().filter(|(track, _)| *track == 0);
    let video: Vec<_> = video.map(|(_, sample)| stamped(&tracks[0], sample)).collect();
    for (sequence_number, samples) in (1..).zip(video.chunks(3)) {
        let media_time = samples[0].dts.try_into().expect("no negative time");
        let reference = Some(ReferenceTime { unix_micros: CAPTURED, media_time });
        let segment_start = Some(SegmentStart { reference });
        let info = ChunkInfo { track_id: tracks[0].id, sequence_number, segment_start };
        cmaf::write_chunk(&mut file, &info, samples).expect("a chunk");
    }
    let mut events = 0;
    Mp4::default().read(&file, &mut |_| events += 1).expect("an MP4");
    let mut stamps = SegmentStamps::default();
    stamps.read(&file);
    assert!(events > 2 && stamps.stamps().is_some(), "{events} events");
    save("viewer_media", name, &[&[33], &file[..]].concat());
    let mut tags = 0;
    Flv::default().read(flv, &mut |_| tags += 1).expect("FLV");
    assert!(tags > 6, "{tags} tags");
    save("viewer_media", &format!("{name}-flv"), &[&[33], flv].concat());
}

fn title_seeds(films: &[(&str, Bytes, Bytes)]) {
    let subtitled = film(&[AVC, AAC, "-map 2:s -c:s mov_text -f mp4"]);
    let films = films.iter().map(|(name, whole, _)| (*name, whole));
    for (name, film) in films.chain([("subtitled", &subtitled)]) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("movie.mp4"), film).expect("a file");
        let library = vod::Library::new(vod::Root::new(folder.path()), vod::Settings::default());
        let title = library.title("movie.mp4").expect("a title");
        assert_eq!((title.tracks.len(), title.texts.len()), (2, usize::from(name == "subtitled")));
        save("titles", name, film);
    }
}

fn amf0_seeds() {
    let number = Value::Number;
    let connect = [
        Value::string("connect"),
        number(1.0),
        Value::object([
            ("app", Value::string("live")),
            ("tcUrl", Value::string("rtmp://localhost/live")),
            ("fpad", Value::Boolean(false)),
            ("fourCcList", Value::StrictArray(vec![Value::string("av01"), Value::string("hvc1")])),
        ]),
    ];
    let every = [
        Value::Undefined,
        Value::Null,
        Value::Unsupported,
        Value::EcmaArray(vec![("width".to_owned(), number(1280.0))]),
        Value::Reference(0),
        Value::Date { milliseconds: 1e12, zone: 0 },
        Value::XmlDocument("<a/>".to_owned()),
        Value::TypedObject {
            class: "Point".to_owned(),
            properties: vec![("x".to_owned(), number(0.5))],
        },
    ];
    for (name, values) in [("connect", &connect[..]), ("every", &every)] {
        let seed = amf0::encode_all(values);
        assert_eq!(amf0::decode(&seed).expect("it parses"), values);
        save("rtmp_amf0", name, &seed);
    }
    // A long string, and a text in Latin-1.
    let seed = b"\x0c\0\0\0\x03abc\x02\0\x04caf\xe9";
    assert_eq!(amf0::decode(seed).expect("it parses").len(), 2);
    save("rtmp_amf0", "texts", seed);
}

/// A publisher and a player, with their server. Each side's bytes are a seed for the other.
fn rtmp_seeds(film: &Bytes) {
    let mut publish = Link::start(Purpose::Publish(PublishKind::Live));
    let (tracks, samples) = read(film);
    let metadata = Metadata::describe(tracks.iter().map(|track| &track.codec)).payload();
    publish.client.send_metadata(0, &metadata).expect("it publishes");
    for (number, track) in tracks.iter().enumerate() {
        let writer = Packetizer::new(0, &track.codec, track.timescale).expect("a codec of FLV");
        let mut messages = vec![writer.sequence_header(0).expect("a header")];
        let samples = samples.iter().filter(|(track, _)| *track == number).take(2);
        messages.extend(samples.map(|(_, sample)| writer.sample(sample).expect("a sample")));
        for message in messages {
            if message.kind() == flv::TagKind::Video {
                publish.client.send_video(message.timestamp(), message.payload())
            } else {
                publish.client.send_audio(message.timestamp(), message.payload())
            }
            .expect("it publishes");
        }
    }
    publish.server.ping(1);
    publish.run();
    publish.client.close();
    publish.run();
    let events = &publish.events;
    let media = |event: &&ServerEvent| {
        matches!(event, ServerEvent::Video { .. } | ServerEvent::Audio { .. })
    };
    assert_eq!(events.iter().filter(media).count(), 6);
    assert!(matches!(events.last(), Some(ServerEvent::Close { .. })), "{events:?}");

    let mut play = Link::start(Purpose::Play(PlayStart::Any));
    play.server.send_metadata(0, metadata).expect("it plays");
    play.server.send_video(0, Bytes::from_static(b"\x17\x01\0\0\0video")).expect("it plays");
    play.server.send_audio(23, Bytes::from_static(b"\xaf\x01audio")).expect("it plays");
    play.client.ask_stream_length().expect("it is connected");
    play.client.pause(true, 40.0).expect("it plays");
    play.client.pause(false, 40.0).expect("it plays");
    play.client.seek(1000.0).expect("it plays");
    play.run();
    play.server.accept_seek(1000.0).expect("it was asked for");
    play.server.request_reconnect(None, "another server");
    play.server.play_complete().expect("it plays");
    play.run();
    let events = &play.events;
    assert!(events.iter().any(|event| matches!(event, ServerEvent::Seek { .. })), "{events:?}");

    for (name, link, first) in [("publish", publish, PUBLISH), ("play", play, PLAY)] {
        save("rtmp_server", name, &[&[PLAY], &link.from_client[HANDSHAKE..]].concat());
        save("rtmp_client", name, &[&[first], &link.from_server[HANDSHAKE..]].concat());
    }
}

/// Two sessions that talk to each other, and all bytes that each has sent.
struct Link {
    client: ClientSession,
    server: ServerSession,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
    /// How many of these bytes the other has taken.
    taken: [usize; 2],
    events: Vec<ServerEvent>,
}

impl Link {
    /// Connects, and starts to publish or to play.
    fn start(purpose: Purpose) -> Self {
        let url = Url::parse("rtmp://localhost/live/x?key=value").expect("a URL");
        let capabilities = Capabilities::forward_all();
        let config = ClientConfig { capabilities, ..ClientConfig::new(&url, purpose) };
        let mut link = Self {
            client: ClientSession::new(config, 1),
            server: ServerSession::new(ServerConfig::default(), 2),
            from_client: Vec::new(),
            from_server: Vec::new(),
            taken: [0; 2],
            events: Vec::new(),
        };
        link.run();
        assert!(link.client.is_started(), "{:?}", link.events);
        link
    }

    /// Passes bytes on until both sides are silent. The server accepts every request.
    fn run(&mut self) {
        loop {
            self.from_client.extend(std::iter::from_fn(|| self.client.poll_output()).flatten());
            self.from_server.extend(std::iter::from_fn(|| self.server.poll_output()).flatten());
            let before = (self.taken, self.events.len());
            let bytes = &self.from_client[self.taken[0]..];
            self.taken[0] += self.server.handle_input(bytes).expect("a sound client");
            while let Some(event) = self.server.poll_event() {
                match event {
                    ServerEvent::Connect { .. } => self.server.accept_connect(),
                    ServerEvent::PublishRequest { .. } => self.server.accept_publish(),
                    ServerEvent::PlayRequest { .. } => self.server.accept_play(true),
                    _ => Ok(()),
                }
                .expect("it was asked for");
                self.events.push(event);
            }
            let bytes = &self.from_server[self.taken[1]..];
            self.taken[1] += self.client.handle_input(bytes).expect("a sound server");
            while self.client.poll_event().is_some() {}
            if before == (self.taken, self.events.len()) {
                return;
            }
        }
    }
}
