use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a viewer may take to hang up.
const PARTING: Duration = Duration::from_secs(5);

/// Waits until the viewer has read all and hung up. If the connection were closed with bytes of the viewer unread,
/// the kernel would reset it, and what the viewer has not read would be lost.
pub(super) async fn drain(socket: &mut TcpStream) -> anyhow::Result<()> {
    socket.shutdown().await?;
    let read_all = async {
        let mut buffer = [0; 1024];
        while socket.read(&mut buffer).await.is_ok_and(|size| size > 0) {}
    };
    // A viewer that stays is left to itself.
    let _ = timeout(PARTING, read_all).await;
    Ok(())
}
