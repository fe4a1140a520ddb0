//! RTMP: each frame is a message.

use std::rc::Rc;

use anyhow::bail;
use protocol::rtmp::{ServerConfig, ServerEvent, ServerSession};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::parting::drain;
use super::session::Session;

/// Most bytes of one read. A player sends little before it plays.
const READ: usize = 4096;

/// Serves one player.
pub(super) async fn serve(mut socket: TcpStream, session: Rc<Session>) -> anyhow::Result<()> {
    let mut rtmp = ServerSession::new(ServerConfig::default(), 1);
    handshake(&mut socket, &mut rtmp).await?;
    session.asked();
    rtmp.accept_play(false)?;
    session.delay().await;
    let sequence_header = session.stream.sequence_header()?;
    rtmp.send_video(sequence_header.timestamp(), sequence_header.payload())?;
    flush(&session, &mut socket, &mut rtmp).await?;
    for piece in 0..session.script.pieces() {
        session.wait_for(piece).await;
        for sample in session.samples(piece)? {
            let message = session.stream.message(&sample)?;
            rtmp.send_video(message.timestamp(), message.payload())?;
            flush(&session, &mut socket, &mut rtmp).await?;
        }
    }
    rtmp.play_unpublished()?;
    flush(&session, &mut socket, &mut rtmp).await?;
    drain(&mut socket).await
}

/// Takes what a player sends up to `play`.
async fn handshake(socket: &mut TcpStream, rtmp: &mut ServerSession) -> anyhow::Result<()> {
    let mut unread = Vec::new();
    let mut buffer = [0; READ];
    loop {
        let size = socket.read(&mut buffer).await?;
        if size == 0 {
            bail!("closed before it plays");
        }
        unread.extend_from_slice(buffer.get(..size).unwrap_or_default());
        loop {
            let taken = rtmp.handle_input(&unread)?;
            unread.drain(..taken);
            let event = rtmp.poll_event();
            match &event {
                Some(ServerEvent::Connect { .. }) => rtmp.accept_connect()?,
                Some(ServerEvent::PlayRequest { .. }) => return Ok(()),
                _ => {}
            }
            while let Some(piece) = rtmp.poll_output() {
                socket.write_all(&piece).await?;
            }
            if event.is_none() && taken == 0 {
                break;
            }
        }
    }
}

/// Sends what the protocol has to send.
async fn flush(
    session: &Session,
    socket: &mut TcpStream,
    rtmp: &mut ServerSession,
) -> anyhow::Result<()> {
    while let Some(piece) = rtmp.poll_output() {
        session.send(socket, &piece).await?;
    }
    Ok(())
}
