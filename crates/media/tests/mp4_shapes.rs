//! Files written by hand, one for each alternative that the format offers. The corpus does not have
//! all of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use media::Error;
use media::mp4::{Index, ReadError, SampleEntry, Source, limits};
use testkit::boxes::{boxed, full, join, moov, stsd};

const STSZ: [u32; 5] = [0, 3, 10, 20, 30];

/// Three samples of 10, 20 and 30 bytes, 40 units each, in one chunk at 1000.
fn three() -> Vec<Vec<u8>> {
    vec![
        stsd(2),
        full(b"stts", 0, 0, &[1, 3, 40]),
        full(b"stsz", 0, 0, &STSZ),
        full(b"stsc", 0, 0, &[1, 1, 3, 1]),
        full(b"stco", 0, 0, &[1, 1000]),
    ]
}

/// The same, with some boxes replaced by others of the same kind, and further boxes.
fn three_with(changes: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut tables = three();
    for change in changes {
        match tables.iter_mut().find(|table| table[4..8] == change[4..8]) {
            Some(table) => table.clone_from(change),
            None => tables.push(change.clone()),
        }
    }
    tables
}

/// The file with 2 KiB of room for media at its end.
fn file(moov: Vec<u8>) -> Vec<u8> {
    join(&[boxed(b"ftyp", b"isom\0\0\0\0isom"), moov, boxed(b"mdat", &[0; 2048])])
}

fn read(file: &[u8]) -> Index {
    Index::read(file).unwrap()
}

#[test]
fn the_head_of_a_file_tells_where_its_index_is() {
    /// A file of which only the first bytes may be read.
    struct Head(Vec<u8>, u64);
    impl Source for Head {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_at(&self, offset: u64, len: usize) -> std::io::Result<bytes::Bytes> {
            assert!(offset + len as u64 <= self.1, "{len} bytes at {offset}");
            self.0.as_slice().read_at(offset, len)
        }
    }
    let place = |boxes: &[Vec<u8>], known| Index::place(&Head(join(boxes), known), known);
    let [ftyp, moov] = [boxed(b"ftyp", b"isom\0\0\0\0isom"), boxed(b"moov", &[0; 10_000])];
    let [short, mdat] = [boxed(b"mdat", &[0; 100]), boxed(b"mdat", &[0; 50_000])];
    let front = [ftyp.clone(), moov.clone(), mdat.clone()];
    // The header of the box behind it is read, too.
    assert_eq!(place(&front, 8192), Some(20..20 + 10_008 + 4096));
    assert_eq!(place(&[ftyp.clone(), mdat.clone(), moov.clone()], 8192), Some(50_028..60_036));
    assert_eq!(
        place(&[ftyp.clone(), short.clone(), moov, mdat], 8192),
        Some(128..128 + 10_008 + 4096)
    );
    // A file that is known whole, and has none.
    assert_eq!(place(&[ftyp, short], 128), None);
    assert_eq!(place(&[b"nothing of this is a box".to_vec()], 24), None);
}

fn samples(file: &[u8]) -> Vec<SampleEntry> {
    let index = read(file);
    assert_eq!((&index.problem, &index.tracks[0].problem), (&None, &None));
    index.tracks[0].samples.iter().collect()
}

fn refusal(file: &[u8]) -> String {
    match Index::read(file) {
        Err(ReadError::Format(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn problem(tables: &[Vec<u8>]) -> String {
    let index = read(&file(moov(tables, None, &[])));
    index.tracks[0].problem.as_ref().expect("a problem").to_string()
}

/// (dts, cts, offset, size, sync) of each.
fn rows(samples: &[SampleEntry]) -> Vec<(i64, i32, u64, u32, bool)> {
    samples.iter().map(|s| (s.dts, s.cts, s.offset, s.size, s.sync)).collect()
}

const PLAIN: [(i64, i32, u64, u32, bool); 3] =
    [(0, 0, 1000, 10, true), (40, 0, 1010, 20, true), (80, 0, 1030, 30, true)];

#[test]
fn boxes_have_sizes_of_32_bits_64_bits_and_to_the_end() {
    assert_eq!(rows(&samples(&file(moov(&three(), None, &[])))), PLAIN);

    // A 64-bit size for mdat, ahead of a moov that lasts to the end of the file.
    let mut mdat = 1u32.to_be_bytes().to_vec();
    mdat.extend(b"mdat");
    mdat.extend((16 + 2048u64).to_be_bytes());
    mdat.extend([0; 2048]);
    let mut last = moov(&three(), None, &[]);
    last[..4].fill(0);
    assert_eq!(rows(&samples(&join(&[mdat, last]))), PLAIN);

    // Anything else between, uuid and four stray bytes at the end included.
    let odd = join(&[
        boxed(b"uuid", &[7; 20]),
        boxed(b"wide", b""),
        moov(&three(), None, &[boxed(b"udta", &[0, 0, 0, 0])]),
        boxed(b"mdat", &[0; 2048]),
        vec![0; 4],
    ]);
    assert_eq!(rows(&samples(&odd)), PLAIN);
}

#[test]
fn an_mdat_longer_than_the_file_is_no_problem_where_the_samples_are_there() {
    let mut data = file(moov(&three(), None, &[]));
    let mdat = data.len() - 2048 - 8;
    data[mdat..mdat + 4].copy_from_slice(&9999u32.to_be_bytes());
    assert_eq!(rows(&samples(&data)), PLAIN);
    data.truncate(1020);
    let index = read(&data);
    let problem = index.tracks[0].problem.as_ref().unwrap();
    assert!(matches!(problem, Error::CutOff { needed: 1060, left: 1020, .. }), "{problem}");
    assert_eq!(index.tracks[0].samples.len(), 3);
}

#[test]
fn sizes_and_offsets_in_all_their_widths() {
    let stz2 = |bits: u32, rest: &[u8]| {
        let mut payload = join(&[vec![0; 4], bits.to_be_bytes().into(), 3u32.to_be_bytes().into()]);
        payload.extend(rest);
        let tables = three().into_iter().filter(|table| table[4..8] != *b"stsz");
        let mut tables: Vec<_> = tables.collect();
        tables.push(boxed(b"stz2", &payload));
        samples(&file(moov(&tables, None, &[]))).iter().map(|s| s.size).collect::<Vec<_>>()
    };
    assert_eq!(stz2(4, &[0x12, 0x30]), [1, 2, 3]);
    assert_eq!(stz2(8, &[10, 20, 30]), [10, 20, 30]);
    assert_eq!(stz2(16, &[1, 0, 0, 20, 0, 30]), [256, 20, 30]);

    let co64 = full(b"co64", 0, 0, &[2, 0, 1000, 0, 1500]);
    let mut tables = three_with(&[full(b"stsc", 0, 0, &[2, 1, 2, 1, 2, 1, 2])]);
    tables.retain(|table| table[4..8] != *b"stco");
    tables.push(co64);
    let found = samples(&file(moov(&tables, None, &[])));
    assert_eq!(found.iter().map(|s| s.offset).collect::<Vec<_>>(), [1000, 1010, 1500]);
    assert_eq!(found.iter().map(|s| s.description).collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn constant_sizes_take_no_room() {
    let tables = three_with(&[
        full(b"stts", 0, 0, &[1, 2000, 1]),
        full(b"stsz", 0, 0, &[1, 2000]),
        full(b"stsc", 0, 0, &[1, 1, 1000, 1]),
        full(b"stco", 0, 0, &[2, 100, 1100]),
    ]);
    let data = file(moov(&tables, None, &[]));
    let index = read(&data);
    let table = &index.tracks[0].samples;
    assert_eq!((table.len(), index.memory() < 100), (2000, true));
    let sample = table.get(1500).unwrap();
    assert_eq!((sample.dts, sample.offset), (1500, 1600));
    assert_eq!(table.at_dts(1234), Some(1234));
    assert_eq!(table.sync_at_or_before(1999), Some(1999));
    assert_eq!(table.sync_at_or_after(7), Some(7));
    assert_eq!(table.iter_from(1998).count(), 2);
}

#[test]
fn sync_samples_are_all_some_or_none() {
    let sync = |stss: &[u32]| {
        let tables = three_with(&[full(b"stss", 0, 0, stss)]);
        let found = samples(&file(moov(&tables, None, &[])));
        found.iter().map(|s| s.sync).collect::<Vec<_>>()
    };
    assert_eq!(sync(&[0]), [false, false, false]);
    assert_eq!(sync(&[1, 2]), [false, true, false]);
    assert_eq!(sync(&[3, 0, 1, 3]), [true, false, true]);
    // With an additional sdtp, which has no information that is needed.
    let tables = three_with(&[boxed(b"sdtp", &[0; 7])]);
    assert_eq!(rows(&samples(&file(moov(&tables, None, &[])))), PLAIN);
}

#[test]
fn composition_offsets_of_both_versions() {
    let found = |version, offsets: &[u32]| {
        let tables = three_with(&[full(b"ctts", version, 0, offsets)]);
        let data = file(moov(&tables, None, &[]));
        let lead = read(&data).tracks[0].samples.lead();
        let times = samples(&data).iter().map(|s| (s.dts, s.pts())).collect::<Vec<_>>();
        (lead, times)
    };
    assert_eq!(found(0, &[2, 1, 80, 2, 0]), (0, vec![(0, 80), (40, 40), (80, 80)]));
    // Fewer offsets than samples: the rest have none.
    assert_eq!(found(0, &[1, 1, 80]), (0, vec![(0, 80), (40, 40), (80, 80)]));
    // Negative: presented as in the file, and decoded early enough.
    let minus = (-40i32).cast_unsigned();
    let expected = (40, vec![(-40, 0), (0, 80), (40, 40)]);
    assert_eq!(found(1, &[3, 1, 0, 1, 40, 1, minus]), expected);
    assert_eq!(found(0, &[3, 1, 0, 1, 40, 1, minus]), expected);
}

#[test]
fn edit_lists_shift_and_trim() {
    let edit = |words: &[u32]| {
        let index = read(&file(moov(&three(), Some(full(b"elst", 0, 0, words)), &[])));
        assert_eq!(index.tracks[0].problem, None);
        let first = index.tracks[0].samples.get(0).unwrap();
        (index.tracks[0].edit, first.dts, index.tracks[0].end())
    };
    const EMPTY: u32 = u32::MAX;
    const ONE: u32 = 0x1_0000;
    // 5/100 s of nothing, then 9/100 s from media time 30.
    let (found, first, end) = edit(&[2, 5, EMPTY, ONE, 9, 30, ONE]);
    assert_eq!((found.shift, found.start, found.end, found.exact), (20, 50, Some(140), true));
    assert_eq!((first, end), (20, 140));
    assert!(!found.presents(20, 30) && found.presents(20, 31) && !found.presents(140, 40));
    // Length 0: to the end, wherever it is.
    let (found, first, end) = edit(&[1, 0, 40, ONE]);
    assert_eq!((found.shift, found.end, found.exact, first, end), (-40, None, true, -40, 80));
    // Two edits that are effectively one.
    let (found, ..) = edit(&[2, 4, 0, ONE, 8, 40, ONE]);
    assert_eq!((found.shift, found.end, found.exact), (0, Some(120), true));
    // A jump, then another rate: the first shift applies, the end is open, and the edit is not
    // exact.
    let (found, _, end) = edit(&[2, 4, 40, ONE, 4, 0, ONE]);
    assert_eq!((found.shift, found.end, found.exact, end), (-40, None, false, 80));
    let (found, ..) = edit(&[1, 4, 40, ONE / 2]);
    assert_eq!((found.shift, found.end, found.exact), (-40, None, false));
    // Only an empty edit.
    let (found, ..) = edit(&[1, 4, EMPTY, ONE]);
    assert_eq!((found.shift, found.exact), (40, false));
    // No entry at all.
    assert_eq!(edit(&[0]).1, 0);
}

#[test]
fn contradicting_tables_are_the_tracks_problem() {
    let cases: [(Vec<u8>, &str); 8] = [
        (
            full(b"stsz", 0, 0, &[0, 0x4000_0000, 1, 2]),
            "stsz: 1073741824 entries announced, 2 present",
        ),
        (full(b"stsz", 0, 0, &[0, 4, 1, 2, 3, 4]), "stsz: 4 samples, chunks for 3 of them"),
        (full(b"stts", 0, 0, &[0]), "stts: no durations"),
        (full(b"stts", 0, 0, &[9, 3, 40]), "stts: 9 entries announced, 1 present"),
        (full(b"stsc", 0, 0, &[1, 1, 3, 3]), "stsc: sample description 3 of 2"),
        (full(b"stco", 0, 0, &[5]), "stco: 5 entries announced, 0 present"),
        (full(b"ctts", 0, 0, &[u32::MAX]), "ctts: 4294967295 entries announced, 0 present"),
        (full(b"stss", 0, 0, &[1]), "stss: 1 entries announced, 0 present"),
    ];
    for (change, text) in cases {
        let found = problem(&three_with(&[change]));
        assert!(found.contains(text), "{found}, expected {text}");
    }
}

#[test]
fn counts_are_checked_against_the_file() {
    // Constant size, so there is no table: only the file's length contradicts 2^32 samples.
    let tables = three_with(&[
        full(b"stsz", 0, 0, &[1, u32::MAX]),
        full(b"stsc", 0, 0, &[1, 1, u32::MAX, 1]),
    ]);
    let data = file(moov(&tables, None, &[]));
    let index = read(&data);
    let found = index.tracks[0].problem.clone().unwrap();
    let Error::Limit { what, value, limit, at } = found else { panic!("{found}") };
    assert_eq!((what.as_ref(), value), ("stsz: sample count", u64::from(u32::MAX)));
    assert_eq!(limit, data.len() as u64);
    assert_eq!(&data[at as usize + 4..at as usize + 8], b"stsz");
    assert_eq!((index.tracks[0].samples.len(), index.memory()), (0, 0));
}

#[test]
fn errors_name_the_box_and_its_place() {
    assert_eq!(refusal(b""), "moov: missing at byte 0");
    assert_eq!(refusal(&boxed(b"ftyp", b"isom\0\0\0\0")), "moov: missing at byte 16");
    let moof = boxed(b"moof", &full(b"mfhd", 0, 0, &[1]));
    assert_eq!(refusal(&moof), "moov: missing, a media segment without its header at byte 0");
    assert_eq!(refusal(&boxed(b"moov", b"")), "moov: no mvhd inside at byte 0");
    let mvhd = full(b"mvhd", 0, 0, &[0, 0, 100, 0]);
    assert_eq!(refusal(&boxed(b"moov", &mvhd)), "moov: no trak inside at byte 0");
    let whole = moov(&three(), None, &[]);
    let text =
        format!("box moov at byte 0 is cut off: {} bytes announced, 100 present", whole.len());
    assert_eq!(refusal(&whole[..100]), text);
    assert_eq!(
        refusal(&[0, 0, 0, 7, b'a', b'b', b'c', b'd']),
        "box abcd: size 7 is less than its header at byte 0"
    );
    let packed = join(&[mvhd, boxed(b"cmov", b"")]);
    assert_eq!(refusal(&boxed(b"moov", &packed)), "compressed moov at byte 36 is not supported");
    // Larger than any sensible moov, and claimed by a source that is large itself.
    struct Huge;
    impl Source for Huge {
        fn len(&self) -> u64 {
            1 << 40
        }
        fn read_at(&self, offset: u64, len: usize) -> std::io::Result<bytes::Bytes> {
            assert!(len < 10_000, "reads {len} bytes at {offset}");
            let mut data = vec![0; len];
            data[..8].copy_from_slice(b"\x40\0\0\0moov");
            Ok(data.into())
        }
    }
    let error = Index::read(&Huge).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("box moov at byte 0: 1073741824 exceeds the limit of {}", limits::MOOV)
    );
}

#[test]
fn a_failing_source_is_not_a_broken_file() {
    struct Failing;
    impl Source for Failing {
        fn len(&self) -> u64 {
            100
        }
        fn read_at(&self, _: u64, _: usize) -> std::io::Result<bytes::Bytes> {
            Err(std::io::ErrorKind::PermissionDenied.into())
        }
    }
    assert!(matches!(Index::read(&Failing), Err(ReadError::Io { at: 0, .. })));
}

#[test]
fn one_broken_track_leaves_the_others() {
    let good = moov(&three(), None, &[]);
    // A second trak with the same ID and without mdia.
    let trak = boxed(b"trak", &full(b"tkhd", 0, 7, &[0, 0, 1]));
    let data = file(moov(&three(), None, &[trak]));
    let index = read(&data);
    assert_eq!(index.tracks.len(), 2);
    assert_eq!(index.tracks[0].problem, None);
    let problem = index.tracks[1].problem.as_ref().unwrap().to_string();
    assert!(problem.starts_with("trak: no mdia inside"), "{problem}");
    assert!(data.len() > good.len());
}

mod fragments {
    use super::*;

    const OFFSET: u32 = 1;
    const FIRST_FLAGS: u32 = 4;
    const DURATION: u32 = 0x100;
    const SIZE: u32 = 0x200;
    const FLAGS: u32 = 0x400;
    const CTS: u32 = 0x800;
    const NON_SYNC: u32 = 0x1_0000;
    const BASE_IS_MOOF: u32 = 0x2_0000;

    /// moov whose track has default description 2, duration 40, size 100, not sync.
    fn init() -> Vec<u8> {
        let trex = full(b"trex", 0, 0, &[1, 2, 40, 100, NON_SYNC]);
        let empty = [stsd(2), full(b"stts", 0, 0, &[0]), full(b"stsz", 0, 0, &[0, 0])];
        moov(&empty, None, &[boxed(b"mvex", &trex)])
    }

    fn moof(trafs: &[Vec<u8>]) -> Vec<u8> {
        boxed(b"moof", &join(trafs))
    }

    fn traf(parts: &[Vec<u8>]) -> Vec<u8> {
        boxed(b"traf", &join(parts))
    }

    fn tfhd(flags: u32, words: &[u32]) -> Vec<u8> {
        full(b"tfhd", 0, flags, words)
    }

    fn trun(version: u8, flags: u32, words: &[u32]) -> Vec<u8> {
        full(b"trun", version, flags, words)
    }

    /// Writes moov, these fragments and room for media. Also returns the position of the first
    /// moof.
    fn with(moofs: &[Vec<u8>]) -> (Vec<u8>, u64) {
        let init = init();
        let at = init.len() as u64;
        (join(&[init, join(moofs), boxed(b"mdat", &[0; 4096])]), at)
    }

    #[test]
    fn defaults_come_from_trex_then_tfhd_then_the_run() {
        let (data, at) = with(&[moof(&[traf(&[
            tfhd(BASE_IS_MOOF, &[1]),
            full(b"tfdt", 0, 0, &[500]),
            trun(0, OFFSET | FIRST_FLAGS, &[3, 200, 0]),
            // Without an offset it continues where the run before ended.
            trun(0, SIZE | CTS, &[2, 7, 80, 9, 0]),
        ])])]);
        let found = samples(&data);
        assert_eq!(
            rows(&found),
            [
                (500, 0, at + 200, 100, true),
                (540, 0, at + 300, 100, false),
                (580, 0, at + 400, 100, false),
                (620, 80, at + 500, 7, false),
                (660, 0, at + 507, 9, false),
            ]
        );
        assert!(found.iter().all(|s| s.description == 1 && s.duration == 40));

        // tfhd has all fields: description 1, duration 20, size 50, sync.
        let (data, at) = with(&[moof(&[traf(&[
            tfhd(BASE_IS_MOOF | 0x3a, &[1, 1, 20, 50, 0]),
            full(b"tfdt", 1, 0, &[1, 0]),
            trun(0, OFFSET, &[2, 100]),
        ])])]);
        let found = samples(&data);
        let start = 1i64 << 32;
        assert_eq!(
            rows(&found),
            [(start, 0, at + 100, 50, true), (start + 20, 0, at + 150, 50, true)]
        );
        assert_eq!(found[0].description, 0);

        // The run has all fields; offsets are signed in version 1, and cause a lead.
        let (data, at) = with(&[moof(&[traf(&[
            tfhd(BASE_IS_MOOF, &[1]),
            trun(
                1,
                OFFSET | DURATION | SIZE | FLAGS | CTS,
                &[2, 100, 10, 5, 0, 10, 30, 6, NON_SYNC, (-10i32).cast_unsigned()],
            ),
        ])])]);
        let found = samples(&data);
        assert_eq!(rows(&found), [(-10, 20, at + 100, 5, true), (0, 0, at + 105, 6, false)]);
    }

    #[test]
    fn data_are_counted_from_a_base_the_moof_or_the_data_before() {
        let run = |offset: u32| trun(0, OFFSET, &[1, offset]);
        let two = || {
            moof(&[
                traf(&[tfhd(1, &[1, 0, 777]), run(3)]),
                traf(&[tfhd(0, &[1]), run(5)]),
                traf(&[tfhd(BASE_IS_MOOF, &[1]), run(7)]),
            ])
        };
        let (data, at) = with(&[two(), moof(&[traf(&[tfhd(0, &[1]), run(9)])])]);
        let second = at + two().len() as u64;
        let offsets: Vec<_> = samples(&data).iter().map(|s| s.offset).collect();
        assert_eq!(offsets, [780, 885, at + 7, second + 9]);
    }

    #[test]
    fn without_tfdt_time_goes_on() {
        let one = || traf(&[tfhd(BASE_IS_MOOF, &[1]), trun(0, OFFSET, &[2, 100])]);
        let later = traf(&[
            tfhd(BASE_IS_MOOF, &[1]),
            full(b"tfdt", 0, 0, &[1000]),
            trun(0, OFFSET, &[2, 100]),
        ]);
        let (data, _) = with(&[moof(&[one(), one()]), moof(&[later]), moof(&[one()])]);
        let times: Vec<_> = samples(&data).iter().map(|s| s.dts).collect();
        assert_eq!(times, [0, 40, 80, 120, 1000, 1040, 1080, 1120]);
        let index = read(&data);
        let table = &index.tracks[0].samples;
        assert_eq!(
            (table.at_dts(999), table.at_dts(1039), table.at_dts(-5)),
            (Some(3), Some(4), Some(0))
        );
    }

    #[test]
    fn a_movie_with_samples_goes_on_in_fragments() {
        let trex = full(b"trex", 0, 0, &[1, 1, 40, 100, 0]);
        let movie = moov(&three(), None, &[boxed(b"mvex", &trex)]);
        let more = moof(&[traf(&[tfhd(BASE_IS_MOOF, &[1]), trun(0, OFFSET, &[1, 50])])]);
        let at = movie.len() as u64;
        let data = join(&[movie, more, boxed(b"mdat", &[0; 2048])]);
        let mut expected = PLAIN.to_vec();
        expected.push((120, 0, at + 50, 100, true));
        assert_eq!(rows(&samples(&data)), expected);
        assert!(read(&data).fragmented);
    }

    #[test]
    fn encryption_that_the_header_does_not_mention_is_a_problem() {
        let piff = 0xa239_4f52_5a9b_4f14_a244_6c42_7c64_8df4_u128.to_be_bytes();
        let uuid = |user: [u8; 16]| boxed(b"uuid", &[&user[..], &[0; 8]].concat());
        for (part, encrypted) in
            [(full(b"senc", 0, 0, &[1, 0, 0]), true), (uuid(piff), true), (uuid([0; 16]), false)]
        {
            let run = [tfhd(BASE_IS_MOOF, &[1]), trun(0, OFFSET, &[2, 100]), part];
            let (data, _) = with(&[moof(&[traf(&run)])]);
            let index = read(&data);
            let problem = index.tracks[0].problem.as_ref().map(ToString::to_string);
            let said =
                problem.as_ref().is_some_and(|text| text.starts_with("encryption of track 1"));
            assert_eq!(said, encrypted, "{problem:?}");
        }
    }

    #[test]
    fn a_broken_fragment_ends_the_track_not_the_file() {
        let good = || moof(&[traf(&[tfhd(BASE_IS_MOOF, &[1]), trun(0, OFFSET, &[2, 100])])]);
        let cases: [(Vec<u8>, &str); 5] = [
            (trun(0, OFFSET | SIZE, &[9, 100, 1, 2]), "trun: 9 samples announced, 2 present"),
            (trun(0, OFFSET, &[1, 0x8000_0000]), "trun: data offset -2147483648 leaves the file"),
            (trun(0, OFFSET, &[u32::MAX, 0]), "trun: sample count"),
            (full(b"tfdt", 1, 0, &[u32::MAX, 0]), "tfdt: time overflows 63 bits"),
            (full(b"tfdt", 0, 0, &[]), "box tfdt"),
        ];
        for (part, text) in cases {
            let bad = moof(&[traf(&[tfhd(BASE_IS_MOOF, &[1]), part])]);
            let (data, _) = with(&[good(), bad]);
            let index = read(&data);
            let problem = index.tracks[0].problem.as_ref().unwrap().to_string();
            assert!(problem.contains(text), "{problem}, expected {text}");
            assert_eq!(index.tracks[0].samples.len(), 2);
        }
        // A fragment of an unknown track; then one that is cut off.
        let stray = moof(&[traf(&[tfhd(BASE_IS_MOOF, &[5]), trun(0, OFFSET, &[2, 100])])]);
        let (data, _) = with(&[stray, good()]);
        let index = read(&data);
        let problem = index.problem.as_ref().unwrap().to_string();
        assert!(problem.starts_with("tfhd: track_ID 5 is not in moov at byte"), "{problem}");
        assert_eq!((index.tracks[0].samples.len(), &index.tracks[0].problem), (2, &None));
        let (data, at) = with(&[good(), good()]);
        let cut = at as usize + good().len() + 20;
        let index = read(&data[..cut]);
        let problem = index.problem.as_ref().unwrap().to_string();
        assert!(
            problem.starts_with("box moof at byte") && problem.ends_with("20 present"),
            "{problem}"
        );
        assert_eq!(index.tracks[0].samples.len(), 2);
    }
}

/// Some writers put an empty table into each track.
#[test]
fn all_frames_of_audio_are_sync_samples_whatever_the_table_says() {
    let decoder = [0x40, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 2, 0x12, 0x10];
    let esds = [&[0, 0, 0, 0, 3, 22, 0, 0, 0, 4, 17][..], &decoder].concat();
    let entry = boxed(b"mp4a", &[vec![0; 28], boxed(b"esds", &esds)].concat());
    let aac = boxed(b"stsd", &[vec![0, 0, 0, 0, 0, 0, 0, 1], entry].concat());
    // Of an unknown codec, the table is believed, unless no frame could be the first.
    for (described, table, of_audio) in
        [(stsd(2), &[0][..], 3), (stsd(2), &[1, 1], 1), (aac.clone(), &[0], 3), (aac, &[1, 1], 3)]
    {
        let tables = three_with(&[described, full(b"stss", 0, 0, table)]);
        let mut file = file(moov(&tables, None, &[]));
        let handler = file.windows(4).position(|bytes| bytes == b"vide").unwrap();
        file[handler..handler + 4].copy_from_slice(b"soun");
        assert_eq!(read(&file).tracks[0].samples.sync_count(), of_audio, "{table:?}");
    }
    let file = file(moov(&three_with(&[full(b"stss", 0, 0, &[0])]), None, &[]));
    assert_eq!(read(&file).tracks[0].samples.sync_count(), 0, "video");
}

/// Files that browsers write have no sequence header in the record.
#[test]
fn the_size_of_av1_may_be_in_the_entry_alone() {
    let mut entry = vec![0; 78];
    entry[24..28].copy_from_slice(&[1, 64, 0, 240]);
    entry.extend(boxed(b"av1C", &[0x81, 0x00, 0x0c, 0x00]));
    let stsd = boxed(b"stsd", &join(&[vec![0, 0, 0, 0, 0, 0, 0, 1], boxed(b"av01", &entry)]));
    let file = file(moov(&three_with(&[stsd]), None, &[]));
    assert_eq!(read(&file).tracks[0].track.codec.resolution(), Some((320, 240)));
}

/// The other tracks of the file can be played.
#[test]
fn audio_of_an_object_type_that_is_not_supported_is_another_codec() {
    let decoder = [0x40, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 3, 0xf9, 0x46, 0x40];
    let esds = [&[0, 0, 0, 0, 3, 23, 0, 0, 0, 4, 18][..], &decoder].concat();
    let entry = [vec![0; 28], boxed(b"esds", &esds)].concat();
    let stsd = boxed(b"stsd", &join(&[vec![0, 0, 0, 0, 0, 0, 0, 1], boxed(b"mp4a", &entry)]));
    let mut file = file(moov(&three_with(&[stsd]), None, &[]));
    let handler = file.windows(4).position(|bytes| bytes == b"vide").unwrap();
    file[handler..handler + 4].copy_from_slice(b"soun");
    let index = read(&file);
    assert_eq!(index.tracks[0].problem, None);
    assert!(matches!(index.tracks[0].track.codec, media::Codec::Other(_)));
}
