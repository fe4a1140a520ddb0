//! Chunks by WebSocket, each a message.

use anyhow::Context;
use protocol::push::frame::{Opcode, close, frame};
use protocol::push::{CloseCode, SUBPROTOCOL, handshake};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::parting::drain;
use super::session::Session;

/// Answers the handshake and sends the stream.
pub(super) async fn serve(
    session: &Session,
    socket: &mut TcpStream,
    fields: &[(String, String)],
) -> anyhow::Result<()> {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    let accepted = handshake::accept(&fields).context("handshake of a WebSocket")?;
    let spoken = if accepted.subprotocol {
        format!("Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n")
    } else {
        String::new()
    };
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n{spoken}\r\n",
        accepted.accept
    );
    socket.write_all(answer.as_bytes()).await?;
    session.delay().await;
    let header = session.stream.header()?;
    session.send(socket, &frame(Opcode::Binary, &header)).await?;
    for piece in 0..session.script.pieces() {
        session.wait_for(piece).await;
        let chunk = session.chunk(piece)?;
        if !chunk.is_empty() {
            session.send(socket, &frame(Opcode::Binary, &chunk)).await?;
        }
    }
    socket.write_all(&close(CloseCode::Normal, "")).await?;
    drain(socket).await
}
