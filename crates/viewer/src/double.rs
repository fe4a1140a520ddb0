//! A server without sockets, for tests of rules about time. Its bytes stay in this process and the
//! clock is paused, so time passes only while everybody waits for it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::{Act, Asked};

/// Bytes that a connection takes before they are read.
const ROOM: usize = 1 << 20;

/// How a server answers.
type Script = dyn Fn(&Asked) -> Vec<Act> + Send + Sync;

/// A server with scripted behaviour.
#[derive(Clone)]
pub(crate) struct Server {
    answer: Arc<Script>,
    log: Arc<Mutex<Vec<Asked>>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), log: Arc::default() }
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn connect(&self) -> Connection {
        let (near, far) = tokio::io::duplex(ROOM);
        tokio::spawn(self.clone().serve(far));
        Connection { pipe: near.into(), came: RefCell::default(), is_over: false.into() }
    }

    /// Answers a connection's requests until either end closes it.
    async fn serve(self, mut pipe: DuplexStream) -> io::Result<()> {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(pipe.read_u8().await?);
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split(' ').nth(1).unwrap().to_owned();
            let asked = {
                let mut log = self.log.lock().unwrap();
                let before = log.iter().filter(|asked| asked.target == target).count();
                let (body, at) = (String::new(), Instant::now().into_std());
                let asked = Asked { target, head, body, before, at };
                log.push(asked.clone());
                asked
            };
            for act in (self.answer)(&asked) {
                match act {
                    Act::Send(bytes) => pipe.write_all(&bytes).await?,
                    Act::Wait(time) => sleep(time).await,
                    Act::WaitUntil(time) => sleep_until(time.into()).await,
                    Act::Close => return Ok(()),
                    Act::Hang => std::future::pending().await,
                }
            }
        }
    }
}

/// A viewer's end of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pipe: RefCell<DuplexStream>,
    /// Bytes that came and were not read.
    came: RefCell<VecDeque<u8>>,
    /// Whether the server has closed it.
    is_over: Cell<bool>,
}

impl Connection {
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut came = self.came.borrow_mut();
        if came.is_empty() && !self.is_over.get() {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *self.pipe.borrow_mut()).poll_read(context, &mut buffer))?;
            came.extend(buffer.filled());
            self.is_over.set(buffer.filled().is_empty());
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.came.get_mut() {
            came if came.is_empty() && !self.is_over.get() => Err(ErrorKind::WouldBlock.into()),
            came => came.read(into),
        }
    }

    /// Requests are short: there is always room for one.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(self.pipe.get_mut()).poll_write(&mut context, bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => unreachable!("requests do not fill a connection"),
        }
    }
}
