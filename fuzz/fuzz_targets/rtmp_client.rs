//! A client session with any input from its server. The first byte has the same meaning as in
//! `rtmp_server`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::rtmp::{ClientConfig, ClientSession, PlayStart, PublishKind, Purpose, Url};

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let url = Url::parse("rtmp://localhost/live/x").expect("a well-formed URL");
    let purpose = if first & 2 == 0 {
        Purpose::Play(PlayStart::Any)
    } else {
        Purpose::Publish(PublishKind::Live)
    };
    let mut client = ClientSession::new(ClientConfig::new(&url, purpose), 0);
    if first & 1 == 0 {
        let mut handshake = vec![3];
        handshake.resize(1 + 2 * 1536, 0);
        assert_eq!(client.handle_input(&handshake), Ok(handshake.len()));
    }
    for piece in bytes.chunks(1 + usize::from(first >> 2)) {
        let mut offered = piece;
        loop {
            let Ok(taken) = client.handle_input(offered) else { return };
            offered = &offered[taken..];
            let mut moved = taken > 0;
            while client.poll_event().is_some() {
                moved = true;
            }
            assert!(client.allocated() <= 18 << 20);
            while client.poll_output().is_some() {
                moved = true;
            }
            if !moved {
                assert!(offered.is_empty(), "stuck");
                break;
            }
        }
    }
});
