//! A server session and input that is broken, random or garbage.

use proptest::prelude::*;
use protocol::rtmp::{Blame, Error, ServerConfig, ServerEvent, ServerSession, code};

use super::recorded::{recorded, stream};
use super::support::Hand;

/// Everything that a server does with some input, with random decisions.
fn serve(bytes: &[u8], split: usize, decide: bool) -> Result<usize, Error> {
    let mut server = ServerSession::new(ServerConfig::default(), 0);
    let mut events = 0;
    for piece in bytes.chunks(split) {
        let mut offered = piece;
        loop {
            let taken = server.handle_input(offered)?;
            offered = &offered[taken..];
            let mut told = 0;
            while let Some(event) = server.poll_event() {
                told += 1;
                let _ = match event {
                    ServerEvent::Connect { .. } => server.accept_connect(),
                    ServerEvent::PublishRequest { .. } if decide => server.accept_publish(),
                    ServerEvent::PublishRequest { .. } => {
                        server.reject_publish(code::PUBLISH_BAD_NAME, "")
                    }
                    ServerEvent::PlayRequest { .. } if decide => server.accept_play(true),
                    ServerEvent::PlayRequest { .. } => {
                        server.reject_play(code::PLAY_STREAM_NOT_FOUND, "")
                    }
                    _ => Ok(()),
                };
            }
            events += told;
            // 32 messages, or an aggregate, which cannot contain more messages in so few bytes.
            assert!(told <= 600, "{told} events at once");
            assert!(server.allocated() <= 18 << 20);
            assert!(server.output_len() < 128 << 10);
            let mut sent = 0;
            while let Some(piece) = server.poll_output() {
                sent += piece.len();
            }
            if taken == 0 && told == 0 && sent == 0 {
                assert!(offered.is_empty(), "stuck");
                break;
            }
        }
    }
    Ok(events)
}

#[test]
fn a_recorded_client_is_served_whatever_is_broken_in_it() {
    for recorded in recorded() {
        // It connects and requests to publish or to play.
        break_in_many_ways(&recorded, 2);
    }
}

#[test]
#[ignore = "corpus"]
fn corpus_a_recorded_client_is_served_whatever_is_broken_in_it() {
    break_in_many_ways(&stream("fq_client_stream"), 3);
}

fn break_in_many_ways(recorded: &[u8], events: usize) {
    assert!(serve(recorded, 100, true).unwrap() >= events);
    assert!(serve(recorded, 1, false).unwrap() >= events);
    for end in (0..recorded.len()).step_by(37) {
        let _ = serve(&recorded[..end], 500, true);
    }
    // Every byte after the handshake is changed once, in two ways.
    for at in 3073..recorded.len() {
        for flip in [0xFF, 0x01] {
            let mut broken = recorded.to_vec();
            broken[at] ^= flip;
            if let Err(error) = serve(&broken, 4096, true) {
                assert_ne!(error.blame, Blame::Caller, "{error}");
                assert!(error.at <= broken.len() as u64, "{error}");
            }
        }
    }
}

proptest! {
    #[test]
    fn garbage_at_any_stage_ends_in_an_error_or_nothing(
        garbage in prop::collection::vec(any::<u8>(), 1..3000),
        stage in 0..4,
        split in 1usize..200,
    ) {
        let mut hand = match stage {
            0 => {
                let _ = serve(&garbage, split, true);
                return Ok(());
            }
            1 => Hand::new(),
            2 => Hand::connected(),
            _ => Hand::publishing(),
        };
        for piece in garbage.chunks(split) {
            if let Err(error) = hand.offer(piece) {
                prop_assert_ne!(error.blame, Blame::Caller);
                break;
            }
            prop_assert!(hand.server.allocated() <= 18 << 20);
        }
    }

    #[test]
    fn random_messages_of_known_types_are_survived(
        messages in prop::collection::vec(
            (prop_oneof![Just(1u8), Just(2), Just(3), Just(4), Just(5), Just(6), Just(8), Just(9),
                Just(15), Just(17), Just(18), Just(20), Just(22)],
             prop::collection::vec(any::<u8>(), 0..60)),
            1..20,
        ),
    ) {
        for mut hand in [Hand::connected(), Hand::publishing()] {
            for (kind, payload) in &messages {
                if hand.message(*kind, payload).is_err() {
                    break;
                }
            }
        }
    }
}
