//! MP4 and FLV as one answer that goes on until the stream ends.

use tokio::net::TcpStream;

use super::session::Session;
use crate::calibrate::stream::Stream;

/// Head of an answer whose end is the connection's.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

/// Sends a header and chunks.
pub(super) async fn mp4(session: &Session, socket: &mut TcpStream) -> anyhow::Result<()> {
    session.delay().await;
    let header = [HEAD, &session.stream.header()?].concat();
    session.send(socket, &header).await?;
    for piece in 0..session.script.pieces() {
        session.wait_for(piece).await;
        session.send(socket, &session.chunk(piece)?).await?;
    }
    Ok(())
}

/// Sends tags.
pub(super) async fn flv(session: &Session, socket: &mut TcpStream) -> anyhow::Result<()> {
    session.delay().await;
    let sequence_header = session.stream.sequence_header()?.tag();
    session.send(socket, &[HEAD, &Stream::flv_head(), &sequence_header].concat()).await?;
    for piece in 0..session.script.pieces() {
        session.wait_for(piece).await;
        for sample in session.samples(piece)? {
            session.send(socket, &session.stream.message(&sample)?.tag()).await?;
        }
    }
    Ok(())
}
