//! RTMP messages as bytes that are the same for all players.

use bytes::Bytes;
use media::flv::{Message, TagKind};
use protocol::rtmp::{ServerConfig, chunk, message};

/// Encodes a message in the chunks that all players get.
pub(crate) fn chunks(message: &Message) -> Bytes {
    let (csid, kind) = match message.kind() {
        TagKind::Audio => (chunk::csid::SHARED_AUDIO, message::AUDIO),
        TagKind::Video => (chunk::csid::SHARED_VIDEO, message::VIDEO),
        TagKind::Script => (chunk::csid::SHARED_DATA, message::DATA_AMF0),
    };
    let (time, payload) = (message.timestamp(), message.payload());
    chunk::shared_message(csid, kind, time, &payload, ServerConfig::default().chunk_size)
}
