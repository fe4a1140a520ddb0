//! Makes a title from files.

use std::sync::Arc;

use media::mp4::{self, Index, TrackIndex};
use media::{Error as MediaError, Kind};

use crate::candidate::{Candidate, Refusal};
use crate::label::distinct;
use crate::left_out::LeftOut;
use crate::rendered::Shelf;
use crate::shift::Timeline;
use crate::source::Source;
use crate::text::{self, Script};
use crate::title::{Reach, Title, Version};
use crate::track::Track;
use crate::{Error, Settings, plan, time};

/// Makes a title from its files, and from the subtitles that were found beside them.
pub(crate) fn title(
    path: &str,
    sources: &[Source],
    beside: (Vec<Script>, Vec<LeftOut>),
    settings: &Settings,
    version: Version,
) -> Result<Title, Error> {
    let (mut scripts, mut left_out) = beside;
    let text = scripts.iter().map(Script::size).sum();
    let mut held = Held::read(path, sources, text::limits::ALL.saturating_sub(text))?;
    for source in sources {
        if let Some(failure) = source.failure.get() {
            return Err(Error::Io { what: source.name.clone(), source: Arc::clone(failure) });
        }
    }
    scripts.append(&mut held.scripts);

    let aligned = cut_video(&mut held.videos, settings);
    if !aligned {
        tracing::warn!(title = path, "keyframes of the renditions differ: each is cut by itself");
    }
    left_out.append(&mut one_of_each(&mut held.audios, sources));
    for audio in &mut held.audios {
        let grid = audio.grid(held.videos.first(), settings);
        audio.cut_by(&grid);
    }
    let candidates: Vec<Candidate> = held.videos.into_iter().chain(held.audios).collect();
    let beginnings: Vec<_> = candidates.iter().filter_map(Candidate::beginning).collect();
    let timeline = Timeline::of(&beginnings);

    let mut tracks: Vec<Track> = Vec::new();
    let (mut videos, mut audios) = (0, 0);
    for candidate in candidates {
        let (letter, number) = match candidate.codec.kind() {
            Kind::Video => ('v', &mut videos),
            Kind::Audio | Kind::Other => ('a', &mut audios),
        };
        let Some(source) = sources.get(candidate.source) else { continue };
        let id = tracks.len() as u32 + 1;
        match candidate.into_track(source, format!("{letter}{number}"), id, timeline) {
            Ok(track) => {
                tracks.push(track);
                *number += 1;
            }
            Err(refusal) => held.refusals.push(*refusal),
        }
    }
    let Some(leading) = tracks.first() else {
        let none = || MediaError::Unsupported { what: "a file without media".into(), at: 0 };
        let reason = held.refusals.into_iter().next().map_or_else(none, |first| first.error);
        return Err(Error::Unreadable { what: path.to_owned(), reason });
    };
    let reach = if let [source] = sources {
        reach(source, leading, &tracks, &held.others)
    } else {
        Vec::new()
    };
    distinguish(&mut tracks);
    left_out.extend(held.refusals.into_iter().map(|refusal| refusal.left_out));
    let end = |track: &Track| {
        time::duration(track.end.saturating_sub(track.origin), track.media.timescale)
    };
    let duration = tracks.iter().map(end).max().unwrap_or_default();
    let texts = text::finish(scripts, duration, timeline, &mut left_out);
    // Files that are left out entirely were logged when that was found.
    for left in left_out.iter().filter(|left| !left.codec.is_empty()) {
        let LeftOut { file, track, codec, reason } = left;
        tracing::info!(title = path, file, track, codec, reason, "track left out");
    }
    Ok(Title {
        path: path.to_owned(),
        version,
        texts,
        tracks,
        duration,
        shift: timeline.shift,
        aligned,
        left_out,
        reach,
        shelf: Shelf::default(),
        files: sources.iter().map(|source| (Arc::clone(&source.file), source.stamp)).collect(),
    })
}

/// Contents of the files.
#[derive(Debug, Default)]
struct Held {
    /// Renditions from the highest bitrate to the lowest, then the alternates.
    videos: Vec<Candidate>,
    /// Audio in the order of the files.
    audios: Vec<Candidate>,
    scripts: Vec<Script>,
    /// Bytes of subtitles that may still be read.
    text_left: u64,
    /// Tracks that are not packaged. Their bytes still take room in the file.
    others: Vec<TrackIndex>,
    refusals: Vec<Refusal>,
}

impl Held {
    /// Reads the files. `text_left` is how many bytes of subtitles may still be read.
    fn read(path: &str, sources: &[Source], text_left: u64) -> Result<Self, Error> {
        let mut held = Self { text_left, ..Self::default() };
        let mut memory = 0;
        for (number, source) in sources.iter().enumerate() {
            let index = match whole(source) {
                Ok(index) => index,
                // The other renditions of a folder can be used without this one.
                Err(mp4::ReadError::Format(error)) if sources.len() > 1 => {
                    tracing::warn!(title = path, file = source.name, %error, "rendition left out");
                    held.refusals.push(Refusal::whole(source, error));
                    continue;
                }
                Err(error) => return Err(Error::read(&source.name, error)),
            };
            memory += index.memory();
            bounded(path, memory)?;
            let shown = index.tracks.iter().any(|track| {
                track.enabled && track.track.kind() == Kind::Video && track.problem.is_none()
            });
            for track in index.tracks {
                match held.take(number, source, track, shown) {
                    Ok(known) => memory += known,
                    Err(refused) => {
                        let (track, error) = *refused;
                        held.refusals.push(Refusal::of(source, &track, error));
                        held.others.push(track);
                    }
                }
                bounded(path, memory)?;
            }
        }
        held.videos.sort_by_key(|video| std::cmp::Reverse(video.bitrate()));
        let mut seen = Vec::new();
        for video in &mut held.videos {
            video.alternate = seen.contains(&video.source);
            seen.push(video.source);
        }
        held.videos.sort_by_key(|video| video.alternate);
        Ok(held)
    }

    /// Sorts a track into its list. `shown` tells whether the file has video that is enabled. Returns the bytes of
    /// memory of what is known of it besides its index.
    fn take(
        &mut self,
        number: usize,
        source: &Source,
        track: TrackIndex,
        shown: bool,
    ) -> Result<usize, Box<(TrackIndex, MediaError)>> {
        if track.has_chapters {
            let what = format!("chapters, which are {track},").into();
            return Err(Box::new((track, MediaError::Unsupported { what, at: 0 })));
        }
        if text::is_timed_text(&track) {
            return match text::read_tx3g(source, &track, self.text_left) {
                Ok(script) => {
                    self.text_left = self.text_left.saturating_sub(script.size());
                    self.scripts.push(script);
                    self.others.push(track);
                    Ok(0)
                }
                Err(error) => Err(Box::new((track, error))),
            };
        }
        if track.track.kind() == Kind::Video && shown && !track.enabled {
            let what = format!("{track}, which the file has disabled,").into();
            return Err(Box::new((track, MediaError::Unsupported { what, at: 0 })));
        }
        let candidate = Candidate::new(number, track)?;
        let known = candidate.memory();
        match candidate.codec.kind() {
            Kind::Video => self.videos.push(candidate),
            Kind::Audio | Kind::Other => self.audios.push(candidate),
        }
        Ok(known)
    }
}

/// Refuses a title for which so many bytes of memory would be needed while it is made.
fn bounded(path: &str, memory: usize) -> Result<(), Error> {
    if memory <= mp4::limits::INDEX {
        return Ok(());
    }
    let (value, limit) = (memory as u64, mp4::limits::INDEX as u64);
    let reason = MediaError::Limit { what: "indexes of the files".into(), at: 0, value, limit };
    Err(Error::Unreadable { what: path.to_owned(), reason })
}

/// Reads the index of a complete file. It is an error if the file is cut off, or if a track other
/// than subtitles is corrupt: a title with missing frames is of no use.
fn whole(source: &Source) -> Result<Index, mp4::ReadError> {
    let mut index = Index::read(source)?;
    if let Some(problem) = index.problem.take() {
        return Err(problem.into());
    }
    for track in &mut index.tracks {
        let cut_off = matches!(track.problem, Some(MediaError::CutOff { .. }));
        if (cut_off || !text::is_timed_text(track))
            && let Some(problem) = track.problem.take()
        {
            return Err(problem.into());
        }
    }
    Ok(index)
}

/// Cuts all renditions at the same times where the keyframes allow it, and otherwise each at its
/// own keyframes. Returns whether they were cut at the same times.
fn cut_video(videos: &mut [Candidate], settings: &Settings) -> bool {
    for video in &mut *videos {
        video.cut(settings);
    }
    let renditions = videos.iter().take_while(|video| !video.alternate).count();
    let (videos, _) = videos.split_at_mut(renditions);
    let [first, _, ..] = &*videos else { return true };
    let micros = |video: &Candidate| -> Vec<i64> {
        let timescale = video.timescale();
        video.keyframes().map(|at| time::rescale_up(at, timescale, 1_000_000)).collect()
    };
    let keyframes: Vec<Vec<i64>> = videos.iter().map(micros).collect();
    let common = plan::common(&keyframes);
    // Keyframes that all renditions share are useful only if they are about as frequent as those of
    // one rendition.
    let apart = |video: &Candidate| time::rescale_up(video.longest(), video.timescale(), 1_000_000);
    let target = time::ticks(settings.segment_target, 1_000_000);
    let longest = videos.iter().map(apart).max().unwrap_or_default();
    let times: Vec<i64> =
        common.iter().filter_map(|row| keyframes.first()?.get(*row.first()?).copied()).collect();
    let end = time::rescale_up(first.index.end(), first.timescale(), 1_000_000);
    let cuts = plan::cut(&times, end, target);
    let starts: Vec<i64> = cuts.iter().filter_map(|cut| times.get(*cut).copied()).collect();
    let ends = starts.iter().skip(1).copied().chain([end]);
    let lengths = starts.iter().zip(ends).map(|(start, end)| end.saturating_sub(*start));
    if lengths.max().is_none_or(|common| common > longest.max(target.saturating_mul(2))) {
        return false;
    }
    for (rendition, video) in videos.iter_mut().enumerate() {
        let rows = cuts.iter().filter_map(|cut| common.get(*cut)?.get(rendition).copied());
        video.cut_at(rows);
    }
    true
}

/// Removes audio tracks that exist in several files, because renditions mostly differ in video
/// only. The track with the highest bitrate stays. Tracks of one file always count as different.
fn one_of_each(audios: &mut Vec<Candidate>, sources: &[Source]) -> Vec<LeftOut> {
    let mut kept: Vec<((usize, Heard), Candidate)> = Vec::new();
    let mut left_out = Vec::new();
    let mut seen: Vec<(usize, Heard)> = Vec::new();
    for audio in audios.drain(..) {
        let heard = Heard::of(&audio);
        // The third English track of one file corresponds to the third of another.
        let alike =
            seen.iter().filter(|(source, other)| *source == audio.source && *other == heard);
        let key = (alike.count(), heard.clone());
        seen.push((audio.source, heard));
        match kept.iter_mut().find(|(other, _)| *other == key) {
            None => kept.push((key, audio)),
            Some((_, other)) => {
                let less = if audio.bitrate() > other.bitrate() {
                    std::mem::replace(other, audio)
                } else {
                    audio
                };
                let file = |candidate: &Candidate| {
                    sources.get(candidate.source).map_or("", |source| &source.name).to_owned()
                };
                left_out.push(LeftOut {
                    file: file(&less),
                    track: Some(less.index.track.id),
                    codec: less.codec.rfc6381().into_owned(),
                    reason: format!("{} has the same at a higher bitrate", file(other)),
                });
            }
        }
    }
    audios.extend(kept.into_iter().map(|(_, audio)| audio));
    left_out
}

/// Properties by which a listener distinguishes audio tracks.
#[derive(Debug, Clone, PartialEq)]
struct Heard {
    language: Option<String>,
    label: Option<String>,
    channels: Option<u16>,
    codec: std::mem::Discriminant<media::Codec>,
}

impl Heard {
    fn of(audio: &Candidate) -> Self {
        Self {
            language: media::language::tag(audio.index.track.language),
            label: audio.index.label.clone(),
            channels: audio.codec.audio().map(|(_, channels)| channels),
            codec: std::mem::discriminant(&audio.codec),
        }
    }
}

/// Gives every track a label that is unique among its kind, and each kind one default track.
fn distinguish(tracks: &mut [Track]) {
    for kind in [Kind::Video, Kind::Audio] {
        let mut taken: Vec<String> = Vec::new();
        let mut default = false;
        for track in tracks.iter_mut().filter(|track| track.media.kind() == kind) {
            if track.label.is_empty() {
                track.label = track.language.clone().unwrap_or_else(|| track.name.clone());
            }
            track.label = distinct(&track.label, &mut taken);
            track.default &= !default;
            default |= track.default;
        }
        let first = tracks.iter_mut().find(|track| track.media.kind() == kind);
        if let Some(first) = first.filter(|_| !default) {
            first.default = true;
        }
    }
}

/// How far into the file each segment of the leading track reaches. The bytes of all tracks count,
/// because a player of the file reads over all of them.
fn reach(source: &Source, leading: &Track, tracks: &[Track], others: &[TrackIndex]) -> Vec<Reach> {
    let mut offsets = vec![0; leading.rows.len()];
    let ends = |timescale| {
        leading.rows.iter().skip(1).map(move |row| {
            let next = leading.samples.get(row.first).map_or(i64::MAX, |sample| sample.dts);
            time::rescale_up(next, leading.media.timescale, timescale)
        })
    };
    // What is not packaged may have very many samples: each frame of PCM is one. So only the last one of each segment
    // counts, which is the one that is furthest into the file where the file is in the order of time.
    for track in others {
        let ends = ends(track.track.timescale).chain([i64::MAX]);
        for (offset, end) in offsets.iter_mut().zip(ends) {
            let last = track.samples.at_dts(end.saturating_sub(1));
            let last = last.and_then(|last| track.samples.get(last));
            if let Some(last) = last.filter(|last| last.dts < end) {
                *offset = last.offset.saturating_add(last.size.into()).max(*offset);
            }
        }
    }
    for track in tracks {
        let mut ends = ends(track.media.timescale);
        let mut end = ends.next();
        let mut segment = 0;
        for sample in &track.samples {
            while end.is_some_and(|end| sample.dts >= end) {
                end = ends.next();
                segment += 1;
            }
            if let Some(offset) = offsets.get_mut(segment) {
                *offset = sample.offset.saturating_add(sample.size.into()).max(*offset);
            }
        }
    }
    let mut furthest = 0;
    let reached = leading.segments().zip(offsets).map(|(segment, offset)| {
        furthest = offset.max(furthest).min(source.len);
        let end = segment.start.saturating_add_unsigned(segment.duration);
        let end = end.saturating_sub(leading.origin);
        Reach { until: time::duration(end, leading.media.timescale), offset: furthest }
    });
    reached.collect()
}
