//! A server session with any input. The first byte determines how the rest is cut into pieces, and
//! how requests are decided. Unless it is odd, the target supplies the handshake.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::rtmp::{ServerConfig, ServerEvent, ServerSession, code};

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let mut server = ServerSession::new(ServerConfig::default(), 0);
    if first & 1 == 0 {
        let mut handshake = vec![3];
        handshake.resize(1 + 2 * 1536, 0);
        assert_eq!(server.handle_input(&handshake), Ok(handshake.len()));
    }
    for piece in bytes.chunks(1 + usize::from(first >> 2)) {
        let mut offered = piece;
        loop {
            let Ok(taken) = server.handle_input(offered) else { return };
            offered = &offered[taken..];
            let mut moved = taken > 0;
            while let Some(event) = server.poll_event() {
                moved = true;
                let accept = first & 2 == 0;
                let decided = match event {
                    ServerEvent::Connect { .. } => server.accept_connect(),
                    ServerEvent::PublishRequest { .. } if accept => server.accept_publish(),
                    ServerEvent::PublishRequest { .. } => {
                        server.reject_publish(code::PUBLISH_BAD_NAME, "")
                    }
                    ServerEvent::PlayRequest { .. } if accept => server.accept_play(true),
                    ServerEvent::PlayRequest { .. } => {
                        server.reject_play(code::PLAY_STREAM_NOT_FOUND, "")
                    }
                    _ => Ok(()),
                };
                assert_eq!(decided, Ok(()));
            }
            assert!(server.allocated() <= 18 << 20);
            while server.poll_output().is_some() {
                moved = true;
            }
            if !moved {
                assert!(offered.is_empty(), "stuck");
                break;
            }
        }
    }
});
