use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::rtmp::Blame;
use crate::rtmp::message::{self, Limits, Message};
use crate::rtmp::output::Output;

fn drain(out: &mut Output) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(piece) = out.poll() {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!(out.len(), 0);
    bytes
}

/// Reads all messages, in pieces of `split` bytes.
fn read_all(reader: &mut Reader, bytes: &[u8], split: usize) -> Vec<Message> {
    let mut messages = Vec::new();
    for piece in bytes.chunks(split) {
        let mut input = piece;
        while let Some(read) = reader.read(&mut input).unwrap() {
            match read {
                Read::Message(message) => messages.push(message),
                Read::Skipped(error) => panic!("{error}"),
                Read::Measured(measured) => panic!("{measured:?}"),
            }
        }
        assert!(input.is_empty());
    }
    messages
}

fn reader() -> Reader {
    Reader::new(Limits::default(), 0)
}

#[test]
fn measured_media_is_told_and_not_kept() {
    let mut bytes = shared_message(8, message::AUDIO, 7, &[0xAF, 1, 2], 128).to_vec();
    bytes.extend_from_slice(&shared_message(10, message::VIDEO, 9, &[5; 1000], 128));
    bytes.extend_from_slice(&shared_message(8, message::AUDIO, 11, &[3], 128));
    bytes.extend_from_slice(&shared_message(8, message::AUDIO, 12, &[], 128));
    bytes.extend_from_slice(&shared_message(9, message::DATA_AMF0, 13, b"kept", 128));
    for split in [1, 2, 13, 131, 4096] {
        let mut reader = reader();
        reader.set_measure_media(true);
        let (mut measured, mut kept) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(split) {
            let mut input = piece;
            while let Some(read) = reader.read(&mut input).unwrap() {
                match read {
                    Read::Measured(it) => {
                        if it.kind == message::VIDEO {
                            assert_eq!(reader.front(), [5; 192], "in pieces of {split}");
                        }
                        measured.push((it.kind, it.timestamp, it.length, it.start));
                    }
                    Read::Message(message) => kept.push(message.payload),
                    Read::Skipped(error) => panic!("{error}"),
                }
            }
        }
        assert_eq!(
            measured,
            [
                (message::AUDIO, 7, 3, [0xAF, 1]),
                (message::VIDEO, 9, 1000, [5, 5]),
                (message::AUDIO, 11, 1, [3, 0]),
            ],
            "in pieces of {split}"
        );
        assert_eq!(kept, [&b"kept"[..]]);
    }
}

fn set_chunk_size(size: u32) -> Vec<u8> {
    let mut out = Output::default();
    let payload = Bytes::copy_from_slice(&size.to_be_bytes());
    Writer::default().message(&mut out, (2, message::SET_CHUNK_SIZE, 0), 0, payload);
    drain(&mut out)
}

#[test]
fn headers_shrink_and_grow() {
    let mut writer = Writer::default();
    let mut out = Output::default();
    let mut sizes = Vec::new();
    for (time, length) in
        [(0, 10), (20, 10), (40, 10), (60, 10), (90, 10), (120, 11), (100, 11), (100, 11)]
    {
        writer.message(&mut out, (4, message::AUDIO, 1), time, Bytes::from(vec![7; length]));
        sizes.push(drain(&mut out).len() - length);
    }
    // Full header; first delta, with equal length; two repetitions; another delta; another length;
    // time runs back; the first delta after that.
    assert_eq!(sizes, [12, 4, 1, 1, 4, 8, 12, 4]);
}

#[test]
fn all_forms_of_the_basic_header() {
    for csid in [2, 3, 63, 64, 65, 319, 320, 1000, MAX_CSID] {
        let bytes = shared_message(csid, message::VIDEO, 5, &[1; 300], 128);
        let messages = read_all(&mut reader(), &bytes, 1);
        assert_eq!(messages.len(), 1);
        assert_eq!((messages[0].csid, messages[0].timestamp, messages[0].stream_id), (csid, 5, 1));
        assert_eq!(messages[0].payload, [1; 300][..]);
    }
}

#[test]
fn timestamps_around_the_limits() {
    let times = [0, 0xFF_FFFE, 0xFF_FFFF, 0x100_0000, 0x7FFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFF, 3, 40];
    for split in 1..30 {
        let mut writer = Writer::default();
        let mut out = Output::default();
        let mut shared = Vec::new();
        for time in times {
            let payload = Bytes::from(vec![time as u8; 300]);
            shared.extend_from_slice(&shared_message(8, message::VIDEO, time, &payload, 128));
            writer.message(&mut out, (6, message::VIDEO, 1), time, payload);
        }
        for bytes in [drain(&mut out), shared] {
            let messages = read_all(&mut reader(), &bytes, split);
            let seen: Vec<u32> = messages.iter().map(|message| message.timestamp).collect();
            assert_eq!(seen, times);
            assert!(messages.iter().all(|message| message.payload.len() == 300));
        }
    }
}

/// A message with an extended timestamp that its further chunks do not repeat.
fn without_repeated_timestamp(time: u32, payload: &[u8]) -> Vec<u8> {
    let with = shared_message(4, message::AUDIO, time, payload, 128);
    let mut bytes = with[..16].to_vec();
    for (index, chunk) in payload.chunks(128).enumerate() {
        if index > 0 {
            bytes.push(0xC4);
        }
        bytes.extend_from_slice(chunk);
    }
    bytes
}

#[test]
fn extended_timestamp_left_out_of_continuations() {
    let time = 0x0102_0304;
    // Payloads whose second chunk begins like the timestamp, or ends within it.
    for tail in [&[9; 200][..], &[1, 2, 3], &[1], &[1, 2, 9, 9, 9], &[1, 2, 3, 5], &[1, 2]] {
        let mut payload = vec![7; 128];
        payload.extend_from_slice(tail);
        let mut bytes = without_repeated_timestamp(time, &payload);
        bytes.extend_from_slice(&shared_message(6, message::VIDEO, 1, b"next", 128));
        for split in 1..=bytes.len() {
            let mut reader = reader();
            let messages = read_all(&mut reader, &bytes, split);
            assert_eq!(messages.len(), 2, "{tail:?} in pieces of {split}");
            assert_eq!((messages[0].timestamp, &messages[0].payload[..]), (time, &payload[..]));
            assert_eq!(&messages[1].payload[..], b"next");
            assert_eq!(messages[1].at, bytes.len() as u64 - 16);
            assert_eq!(reader.position(), bytes.len() as u64);
        }
    }
}

#[test]
fn a_repeated_header_repeats_the_delta() {
    // 5.3.2.1: audio every 20 ms, first message 1000 with format 0, then 2, then 3.
    let mut bytes = shared_message(4, message::AUDIO, 1000, &[1; 32], 128).to_vec();
    bytes.extend_from_slice(&[0x84, 0, 0, 20]);
    bytes.extend_from_slice(&[2; 32]);
    bytes.push(0xC4);
    bytes.extend_from_slice(&[3; 32]);
    let times: Vec<u32> =
        read_all(&mut reader(), &bytes, 5).iter().map(|message| message.timestamp).collect();
    assert_eq!(times, [1000, 1020, 1040]);
    // 5.3.1.2.4: format 3 right after format 0 adds the timestamp itself.
    let mut bytes = shared_message(4, message::AUDIO, 1000, &[1; 32], 128).to_vec();
    bytes.push(0xC4);
    bytes.extend_from_slice(&[3; 32]);
    assert_eq!(read_all(&mut reader(), &bytes, 5)[1].timestamp, 2000);
}

#[test]
fn abort_discards_and_chunk_size_takes_effect() {
    let mut bytes = shared_message(6, message::VIDEO, 1, &[1; 300], 128)[..12 + 128].to_vec();
    let mut out = Output::default();
    let mut writer = Writer::default();
    let csid = Bytes::copy_from_slice(&6u32.to_be_bytes());
    writer.message(&mut out, (2, message::ABORT, 0), 0, csid);
    bytes.extend_from_slice(&drain(&mut out));
    bytes.extend_from_slice(&set_chunk_size(1000));
    bytes.extend_from_slice(&shared_message(6, message::VIDEO, 2, &[2; 1500], 1000));
    let messages = read_all(&mut reader(), &bytes, 7);
    assert_eq!(messages.len(), 1);
    assert_eq!((messages[0].timestamp, messages[0].payload.len()), (2, 1500));
}

fn refuse(bytes: &[u8]) -> crate::rtmp::Error {
    let (mut reader, mut input) = (reader(), bytes);
    loop {
        match reader.read(&mut input) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("accepted"),
            Err(error) => return error,
        }
    }
}

#[test]
fn bad_chunks_are_refused_with_their_place() {
    let mut prefix = shared_message(4, message::AUDIO, 0, b"x", 128).to_vec();
    let at = prefix.len() as u64;
    prefix.push(0xC5);
    let error = refuse(&prefix);
    assert_eq!((error.blame, error.csid, error.at), (Blame::PeerMisbehaved, Some(5), at));
    assert!(refuse(&[0x84, 0, 0, 1]).what.contains("without a header"));
    for size in [0, 0x8000_0000, 0xFFFF_FFFF] {
        let error = refuse(&set_chunk_size(size));
        assert!(error.what.contains("chunk size"), "{error}");
    }
    // Cut off: three bytes of chunk size.
    let error = refuse(&shared_message(2, message::SET_CHUNK_SIZE, 0, &[0, 0, 1], 128));
    assert!(error.what.contains("cut off"), "{error}");
    // A command that announces 16 MiB.
    let error = refuse(&[3, 0, 0, 0, 0xFF, 0xFF, 0xFF, 20, 0, 0, 0, 0]);
    assert_eq!(error.blame, Blame::LimitExceeded);
    // A new header in the middle of a message.
    let mut torn = shared_message(4, message::AUDIO, 0, &[1; 200], 128)[..140].to_vec();
    torn.extend_from_slice(&shared_message(4, message::AUDIO, 0, &[1; 20], 128));
    assert!(refuse(&torn).what.contains("missing"));
    // One chunk stream too many.
    let streams: Vec<u8> = (2..70)
        .flat_map(|csid| shared_message(csid, message::AUDIO, 0, b"x", 128).to_vec())
        .collect();
    assert_eq!(refuse(&streams).blame, Blame::LimitExceeded);
}

#[test]
fn long_data_and_unknown_types_are_skipped_and_said() {
    let mut bytes = shared_message(5, message::DATA_AMF0, 0, &vec![0; 300 << 10], 128).to_vec();
    bytes.extend_from_slice(&shared_message(5, 99, 0, &[0; 50], 128));
    bytes.extend_from_slice(&shared_message(5, message::AUDIO, 0, b"x", 128));
    let (mut reader, mut input) = (reader(), &bytes[..]);
    let mut blames = Vec::new();
    loop {
        match reader.read(&mut input).unwrap() {
            Some(Read::Skipped(error)) => blames.push(error.blame),
            Some(Read::Message(message)) => break assert_eq!(message.payload, &b"x"[..]),
            other => panic!("{other:?}"),
        }
        assert_eq!(reader.allocated(), 0);
    }
    assert_eq!(blames, [Blame::LimitExceeded, Blame::Unsupported]);
}

#[test]
fn announced_bytes_are_not_allocated() {
    let mut reader = reader();
    let mut input = &[4, 0, 0, 0, 0xFF, 0xFF, 0xFF, message::VIDEO, 1, 0, 0, 0, 1, 2, 3][..];
    assert_eq!(reader.read(&mut input), Ok(None));
    assert!(reader.allocated() <= 256 << 10, "{}", reader.allocated());
}

#[test]
fn memory_stays_bounded_however_much_is_begun() {
    let mut reader = reader();
    let mut setup = &set_chunk_size(0xFF_FFFF)[..];
    assert_eq!(reader.read(&mut setup), Ok(None));
    let mut peak = 0;
    let mut error = None;
    // Each chunk stream begins a message of 16 MiB.
    'streams: for csid in 3..60u8 {
        let header = [csid, 0, 0, 0, 0xFF, 0xFF, 0xFF, message::VIDEO, 1, 0, 0, 0];
        let mut bytes = header.to_vec();
        // A message must stay incomplete, so its chunks are as short as the chunk size.
        bytes.extend_from_slice(&vec![0; 1 << 20]);
        let mut sized = set_chunk_size(1 << 20);
        sized.extend_from_slice(&bytes);
        let mut input = &sized[..];
        loop {
            match reader.read(&mut input) {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(found) => {
                    error = Some(found);
                    break 'streams;
                }
            }
        }
        peak = peak.max(reader.allocated());
    }
    assert_eq!(error.unwrap().blame, Blame::LimitExceeded);
    assert!(peak <= (16 << 20) + (2 << 20), "{peak}");
}

#[test]
fn a_million_tiny_chunks_are_linear_in_time() {
    let payload = vec![5; 1_000_000];
    let mut bytes = set_chunk_size(1);
    bytes.extend_from_slice(&shared_message(70, message::VIDEO, 0x0100_0000, &payload, 1));
    let started = std::time::Instant::now();
    let messages = read_all(&mut reader(), &bytes, 1460);
    assert_eq!(messages[0].payload, payload);
    // Quadratic time would take hours.
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

#[derive(Debug, Clone)]
struct Sent {
    csid: u32,
    kind: u8,
    timestamp: u32,
    payload: Vec<u8>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let time = prop_oneof![
        0u32..2000,
        0xFF_FFF0..0x100_0010u32,
        0xFFFF_FFF0..=0xFFFF_FFFFu32,
        any::<u32>(),
    ];
    let csid = prop_oneof![Just(4u32), Just(6), Just(64), Just(320), Just(MAX_CSID)];
    let length = prop_oneof![0usize..10, 120..140usize, 0..3000usize];
    (csid, prop_oneof![Just(message::AUDIO), Just(message::VIDEO)], time, length).prop_map(
        |(csid, kind, timestamp, length)| Sent {
            csid,
            kind,
            timestamp,
            payload: (0..length).map(|index| (index % 251) as u8).collect(),
        },
    )
}

/// Chunks of one message with their headers, as a peer that interleaves messages sends them.
fn chunks(sent: &Sent, chunk_size: usize) -> Vec<Vec<u8>> {
    let bytes = shared_message(sent.csid, sent.kind, sent.timestamp, &sent.payload, chunk_size);
    let basic = match sent.csid {
        0..64 => 1,
        64..320 => 2,
        _ => 3,
    };
    let extended = if sent.timestamp >= 0xFF_FFFF { 4 } else { 0 };
    let mut rest = &bytes[..];
    let mut chunks = Vec::new();
    let mut header = basic + 11 + extended;
    let mut payload = sent.payload.len();
    loop {
        let taken = payload.min(chunk_size);
        let (chunk, others) = rest.split_at(header + taken);
        chunks.push(chunk.to_vec());
        (rest, payload, header) = (others, payload - taken, basic + extended);
        if payload == 0 {
            return chunks;
        }
    }
}

fn assert_same(messages: &[Message], sent: &[Sent]) -> Result<(), TestCaseError> {
    prop_assert_eq!(messages.len(), sent.len());
    for (message, sent) in messages.iter().zip(sent) {
        prop_assert_eq!(
            (message.csid, message.kind, message.timestamp, &message.payload[..]),
            (sent.csid, sent.kind, sent.timestamp, &sent.payload[..])
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn written_messages_are_read(
        sent in prop::collection::vec(sent(), 1..20),
        size in prop_oneof![1usize..5, 100..200usize, Just(65536usize), Just(MAX_SIZE)],
        split in prop_oneof![1usize..20, Just(usize::MAX)],
    ) {
        let mut writer = Writer::default();
        writer.set_chunk_size(size);
        let mut out = Output::default();
        for sent in &sent {
            let payload = Bytes::copy_from_slice(&sent.payload);
            writer.message(&mut out, (sent.csid, sent.kind, 1), sent.timestamp, payload);
        }
        let mut bytes = set_chunk_size(size as u32);
        bytes.extend_from_slice(&drain(&mut out));
        assert_same(&read_all(&mut reader(), &bytes, split), &sent)?;
    }

    #[test]
    fn interleaved_messages_are_told_apart(
        mut first in sent(),
        mut second in sent(),
        size in 1usize..200,
        split in prop_oneof![1usize..20, Just(usize::MAX)],
        order in prop::collection::vec(any::<bool>(), 0..200),
    ) {
        (first.csid, second.csid) = (4, 320);
        let mut streams = [chunks(&first, size), chunks(&second, size)];
        for stream in &mut streams {
            stream.reverse();
        }
        let mut bytes = set_chunk_size(size as u32);
        let mut ended = Vec::new();
        let picks = order.into_iter().map(usize::from);
        for pick in picks.chain(std::iter::repeat_n(0, 4000)).chain(std::iter::repeat_n(1, 4000)) {
            if let Some(chunk) = streams[pick].pop() {
                bytes.extend_from_slice(&chunk);
                if streams[pick].is_empty() {
                    ended.push([&first, &second][pick].clone());
                }
            }
        }
        assert_same(&read_all(&mut reader(), &bytes, split), &ended)?;
    }

    #[test]
    fn every_split_gives_the_same(sent in prop::collection::vec(sent(), 1..4)) {
        let bytes: Vec<u8> =
            sent.iter().flat_map(|sent| chunks(sent, 128)).flatten().collect();
        for cut in 0..=bytes.len().min(400) {
            let mut reader = reader();
            let mut messages = read_all(&mut reader, &bytes[..cut], usize::MAX);
            messages.extend(read_all(&mut reader, &bytes[cut..], usize::MAX));
            assert_same(&messages, &sent)?;
        }
    }

    #[test]
    fn garbage_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000), split in 1usize..50) {
        let mut reader = reader();
        'pieces: for piece in bytes.chunks(split) {
            let mut input = piece;
            loop {
                match reader.read(&mut input) {
                    Ok(None) => break,
                    Ok(Some(_)) => {}
                    Err(error) => {
                        prop_assert!(error.at <= bytes.len() as u64);
                        break 'pieces;
                    }
                }
            }
        }
        prop_assert!(reader.allocated() <= 18 << 20);
    }
}
