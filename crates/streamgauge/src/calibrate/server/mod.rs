//! The bundled server: it publishes the stream of one case on a loopback address, and does to its viewer what the
//! case's script says. It is no origin: it knows its only viewer, and all bytes before they are asked for.
//!
//! ```text
//! HTTP ─▶ http ─┬─ hls, dash ─▶ playlists, manifests
//!               ├─ endless ─▶ MP4 and FLV     ─▶ session: what comes when, and how fast
//!               ├─ file ─▶ MP4 with an index
//!               ├─ push ─▶ WebSocket
//!               └─ whep ─▶ UDP
//! RTMP ─▶ rtmp
//! ```

mod dash;
mod endless;
mod file;
mod hls;
mod http;
mod parting;
mod push;
mod rtmp;
mod session;
mod whep;

use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

use super::player::Addresses;
use super::script::Script;
use super::stream::Stream;
use crate::selfwatch::{LoopReport, LoopWatch};
use session::Session;

/// A server of one case, with an event loop of its own, that runs until it is stopped.
pub(super) struct Server {
    pub(super) addresses: Addresses,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<LoopReport>,
}

impl Server {
    /// Starts a server that does to its viewer what the script says.
    ///
    /// # Errors
    /// There is no socket or thread for it.
    pub(super) fn start(script: Script, stream: Arc<Stream>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bind = || runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let (http, rtmp) = (bind()?, bind()?);
        let addresses = Addresses { http: http.local_addr()?, rtmp: rtmp.local_addr()? };
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            let mut watch = LoopWatch::start();
            LocalSet::new().block_on(&runtime, async {
                let session = Rc::new(Session::new(script, stream));
                let listen = async {
                    tokio::join!(
                        accept(http, |socket| http::serve(socket, Rc::clone(&session))),
                        accept(rtmp, |socket| rtmp::serve(socket, Rc::clone(&session))),
                    )
                };
                tokio::select! {
                    // A sender that is gone means the same as a word of it.
                    _ = stopped => {}
                    _ = listen => {}
                    () = watch.run() => {}
                }
            });
            watch.finish()
        };
        let thread = thread::Builder::new().name("server".to_owned()).spawn(serve);
        Ok(Self { addresses, stop, thread: thread.context("starting a server")? })
    }

    /// Ends the server; returns how late its event loop was.
    ///
    /// # Errors
    /// Its thread has failed.
    pub(super) fn stop(self) -> anyhow::Result<LoopReport> {
        // A thread that has ended needs no notice.
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow!("the bundled server has failed"))
    }
}

/// Accepts connections. Each is served by a task of its own. It ends with its viewer, whose report says what was
/// wrong, so an error of a connection is of no further use here.
async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = anyhow::Result<()>> + 'static,
{
    // Where no connection can be accepted, the viewer reports that nobody is there.
    while let Ok((socket, _)) = listener.accept().await {
        if socket.set_nodelay(true).is_ok() {
            let served = serve(socket);
            spawn_local(async move { served.await.is_ok() });
        }
    }
}
