//! Zheng and Gonzalez (2021), 3.1 and 4.1, the *distributor*: "built with Rust, Tokio, and Hyper",
//! "a static file server which supports GET requests for content and the Partial-Content HTTP
//! header. Application level in-memory caching of content is not considered and all content is
//! read from disk."
//!
//! The model has tokio's multi-threaded runtime, a task for each connection, hyper's HTTP/1 server,
//! and a body that is read from a `tokio::fs::File` whenever hyper asks for more. tokio reads files
//! on its pool of blocking threads, so every read is passed to that pool and back.
//!
//! To repeat: figures 9 and 10, where this model had the worst tail of all at 100 requests a
//! second, and nearly the worst at 1,000. Its authors could not explain this.
//!
//! The paper does not tell how much is read at a time. hyper's example of that year for sending a
//! file reads through tokio-util's `FramedRead`, 8 KiB at a time, so this is the default.
//! `--read-size` sets another length for each read.
//!
//! Differences: hyper and tokio are today's. Opening a file, querying its length and finding the
//! range need one hand-over to the blocking threads, not three, which favours the model. hyper
//! closes a connection whose head is not finished in time, without a 408. The kernel closes one
//! whose client takes nothing for as long (`TCP_USER_TIMEOUT`). Neither occupies a thread here.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use ::hyper::server::conn::http1;
use ::hyper::service::service_fn;
use ::hyper::{Request as HttpRequest, Response, Version};
use bytes::{Bytes, BytesMut};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use crate::http::{Answer, Body, MAX_HEAD, Request, Root};
use crate::net;

/// Serves forever.
///
/// # Errors
/// The runtime cannot be created.
pub(crate) fn run(
    listener: std::net::TcpListener,
    root: Root,
    workers: Option<usize>,
    read_size: usize,
    timeout: Duration,
) -> io::Result<Infallible> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        runtime.worker_threads(workers);
    }
    let runtime = runtime.enable_all().build()?;
    // Accepted connections inherit this, like the options that `listen` sets.
    SockRef::from(&listener).set_tcp_user_timeout(Some(timeout))?;
    listener.set_nonblocking(true)?;
    net::say_ready(&listener)?;
    let server = async {
        let listener = TcpListener::from_std(listener)?;
        accept(&listener, &Arc::new(root), read_size, timeout).await
    };
    // The listener's loop runs on a worker, like every task.
    runtime.block_on(server)
}

async fn accept(
    listener: &TcpListener,
    root: &Arc<Root>,
    read_size: usize,
    timeout: Duration,
) -> io::Result<Infallible> {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(net::OUT_OF_DESCRIPTORS).await;
            continue;
        };
        let root = Arc::clone(root);
        tokio::spawn(async move {
            let respond = service_fn(|request| respond(request, Arc::clone(&root), read_size));
            // A broken connection affects no other.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(timeout)
                .max_header_size(MAX_HEAD)
                .serve_connection(TokioIo::new(socket), respond)
                .await;
        });
    }
}

async fn respond(
    request: HttpRequest<Incoming>,
    root: Arc<Root>,
    read_size: usize,
) -> io::Result<Response<FileBody>> {
    let asked = Request::read(
        request.method().as_str(),
        &request.uri().to_string(),
        request.version() == Version::HTTP_11,
        request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())),
    );
    let refused = asked.is_err();
    let find = move || {
        let answer = Answer::to(&asked, &root);
        let (status, mut head) = (answer.status(), Response::builder());
        answer.fields(|name, value| {
            head = std::mem::take(&mut head).header(name, value.to_string());
        });
        let (text, body) = answer.into_body();
        Ok::<_, io::Error>((head.status(status), text, body.map(positioned).transpose()?))
    };
    let (mut head, text, file) = spawn_blocking(find).await.map_err(io::Error::other)??;
    if refused {
        head = head.header("Connection", "close");
    }
    head.body(FileBody::new(text, file, read_size)).map_err(io::Error::other)
}

/// The file, positioned at the first byte to send, and the number of bytes.
fn positioned(body: Body) -> io::Result<(std::fs::File, u64)> {
    let (mut file, range) = body.into_file();
    file.seek(SeekFrom::Start(range.start))?;
    Ok((file, range.end - range.start))
}

/// A body that reads the file each time hyper asks for more; or a sentence.
struct FileBody {
    text: &'static str,
    file: Option<File>,
    /// Bytes of the file that are not sent yet.
    left: u64,
    /// Buffer of the next read, while it runs.
    buffer: BytesMut,
    read_size: usize,
}

impl FileBody {
    fn new(text: &'static str, file: Option<(std::fs::File, u64)>, read_size: usize) -> Self {
        let (file, left) = file.unzip();
        let file = file.map(|file| {
            let mut file = File::from_std(file);
            file.set_max_buf_size(read_size);
            file
        });
        Self { text, file, left: left.unwrap_or(0), buffer: BytesMut::new(), read_size }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let Some(file) = &mut self.file else { return Poll::Ready(Ok(Bytes::new())) };
        let size = usize::try_from(self.left).map_or(self.read_size, |l| l.min(self.read_size));
        self.buffer.resize(size, 0);
        let mut room = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(file).poll_read(context, &mut room))?;
        let read = room.filled().len();
        if read == 0 {
            // The file has become shorter, so the connection ends early.
            return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
        }
        self.left -= read as u64;
        Poll::Ready(Ok(self.buffer.split_to(read).freeze()))
    }
}

impl HttpBody for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(text.as_bytes())))));
        }
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let read = ready!(self.poll_read(context));
        Poll::Ready(Some(read.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_empty() && self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.len() as u64 + self.left)
    }
}
