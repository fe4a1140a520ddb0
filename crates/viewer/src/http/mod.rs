//! A player's HTTP/1.1 client. It keeps its connection and sends one request at a time. It passes
//! bodies on as they come; a body that nobody reads is thrown away in the kernel.

mod body;
mod response;

use std::io::ErrorKind;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use response::Response;

use crate::socket::{Socket, write_all};
use crate::url::Url;
use crate::watchdog::Watchdog;
use crate::{Asks, Error, Kind, Micros, Viewer};

/// Most redirects that are followed for one request.
const MAX_REDIRECTS: usize = 5;
/// What the client does with a body.
pub enum Body<'a> {
    /// Counts it as media and throws it away.
    Discard,
    /// Passes it on as media, piece by piece.
    Media(&'a mut dyn FnMut(&[u8]) -> Result<(), Error>),
    /// Collects it as media, up to this many bytes.
    Collect(&'a mut Vec<u8>, usize),
    /// Collects anything else, up to this many bytes.
    Text(&'a mut Vec<u8>, usize),
}

/// What a request changes at the server.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// Makes a resource.
    Post {
        /// Media type of the payload.
        kind: &'a str,
        /// What is sent.
        payload: &'a str,
    },
    /// Removes a resource.
    Delete,
}

/// What to ask for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Where to ask.
    pub url: &'a Url,
    /// What is there.
    pub asks: Asks,
    /// First byte and length; `None` for all of it.
    pub range: Option<(u64, Option<u64>)>,
    /// Whether the client reads on only while the player has room for more.
    pub paced: bool,
    /// How long the server may take beyond the usual, for example in a blocking request that it
    /// answers once there is something new.
    pub wait: Duration,
}

impl<'a> Request<'a> {
    /// Asks for all of a resource, at full speed.
    pub fn new(url: &'a Url, asks: Asks) -> Self {
        Self { url, asks, range: None, paced: false, wait: Duration::ZERO }
    }
}

/// An answer whose body has been read.
#[derive(Debug, Clone)]
pub struct Answer {
    /// URL that the answer came from, if redirected.
    pub moved: Option<Box<Url>>,
    /// When the first byte of the answer came.
    pub first: Micros,
    /// When the last byte of the answer came.
    pub last: Micros,
    /// How long that took since the request was sent, without the time in which the player had no room.
    pub took: Micros,
    /// Bytes of the body.
    pub bytes: u64,
    /// Where a redirect leads, or what was made is.
    location: Option<Box<str>>,
    is_redirect: bool,
}

impl Answer {
    /// The URL of what a request to `asked` has made, if the server names one.
    ///
    /// # Errors
    /// The name is no URL.
    pub fn made(&self, asked: &Url) -> Result<Option<Url>, Error> {
        let base = self.moved.as_deref().unwrap_or(asked);
        self.location.as_deref().map(|location| base.resolve(location)).transpose()
    }
}

/// A client and its connection.
#[derive(Debug)]
pub struct Client<'a> {
    viewer: &'a Viewer,
    connection: Option<Connection>,
    /// What its requests change; a reference, because each waiting viewer keeps a client.
    change: Option<&'a Change<'a>>,
    watchdog: Watchdog,
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    authority: String,
    secure: bool,
    /// Whether it has answered before. The server may have closed such a connection since then,
    /// which is nobody's fault.
    used: bool,
}

impl Connection {
    async fn open(viewer: &Viewer, url: &Url) -> Result<Self, Error> {
        let socket = viewer.connect_http(url).await?;
        let authority = url.authority().to_owned();
        Ok(Self { socket, authority, secure: url.is_secure(), used: false })
    }

    fn is_to(&self, url: &Url) -> bool {
        self.authority == url.authority() && self.secure == url.is_secure()
    }
}

impl<'a> Client<'a> {
    /// Makes a client without a connection.
    pub fn new(viewer: &'a Viewer) -> Self {
        let watchdog = Watchdog::new(viewer.lane.options.patience);
        Self { viewer, connection: None, change: None, watchdog }
    }

    /// Makes a client whose requests change what is there, instead of asking for it.
    pub fn changing(viewer: &'a Viewer, change: &'a Change<'a>) -> Self {
        Self { change: Some(change), ..Self::new(viewer) }
    }

    /// Sends a request and follows redirects.
    ///
    /// # Errors
    /// There is no good answer, or the answer is not valid HTTP.
    pub async fn send(
        &mut self,
        request: Request<'_>,
        mut body: Body<'_>,
    ) -> Result<Answer, Error> {
        let mut moved: Option<Box<Url>> = None;
        for _ in 0..=MAX_REDIRECTS {
            let url = moved.as_deref().unwrap_or(request.url);
            let answer = self
                .exchange(&Request { url, ..request }, &mut body)
                .await
                .map_err(|error| error.at(url))?;
            match &answer.location {
                Some(location) if answer.is_redirect => {
                    moved = Some(Box::new(url.resolve(location)?));
                }
                _ => return Ok(Answer { moved, ..answer }),
            }
        }
        let what = format!("redirected more than {MAX_REDIRECTS} times");
        Err(Error::new(Kind::Redirect, what).at(request.url))
    }

    /// Sends one request and reads its answer, on the kept connection or on a new one.
    async fn exchange(
        &mut self,
        request: &Request<'_>,
        body: &mut Body<'_>,
    ) -> Result<Answer, Error> {
        let url = request.url;
        // A loop instead of two calls of `attempt`: each call would take its own room in the
        // future.
        loop {
            let kept = self.connection.take().filter(|kept| kept.is_to(url));
            let mut connection = match kept {
                Some(kept) => kept,
                // Boxed: it is large, and it is over before the long waits begin.
                None => Box::pin(Connection::open(self.viewer, url)).await?,
            };
            let mut response = Response::to(self.change);
            let result = self.attempt(&mut connection, request, &mut response, body).await;
            match result {
                // The server may close an idle connection at any time (RFC 9112 9.3).
                Err(Error { kind: Kind::Dropped, .. })
                    if connection.used && !response.has_begun() =>
                {
                    self.viewer.stats().reconnects += 1;
                }
                result => return self.finish(connection, &response, result),
            }
        }
    }

    /// Keeps the connection if it can be used again.
    fn finish(
        &mut self,
        mut connection: Connection,
        response: &Response,
        result: Result<Answer, Error>,
    ) -> Result<Answer, Error> {
        if response.can_keep() {
            connection.used = true;
            self.connection = Some(connection);
        }
        result
    }

    async fn attempt(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        response: &mut Response,
        body: &mut Body<'_>,
    ) -> Result<Answer, Error> {
        let mut sent = self.viewer.now();
        let text = self.text(request);
        write_all(&mut connection.socket, &mut self.watchdog, text.as_bytes(), |sent| {
            self.viewer.count_sent(sent);
        })
        .await?;
        drop(text);
        let (mut first, mut last) = (sent, sent);
        while !response.is_done() {
            let has_begun = response.has_begun();
            let wait = if has_begun { Duration::ZERO } else { request.wait };
            let readable = connection.socket.readable();
            self.watchdog
                .guard("waiting for the answer", wait, readable)
                .await?
                .map_err(|error| Error::io(&error, "reading"))?;
            self.read(&mut connection.socket, response, body)?;
            last = self.viewer.now();
            if !has_begun {
                first = last;
            }
            if request.paced && !response.is_done() {
                self.viewer.wait_for_room().await;
                // What the player waits is not the server's time.
                sent += self.viewer.now() - last;
            }
        }
        let head = response.head.as_ref();
        let status = head.map_or(0, |head| head.status);
        let location = head.and_then(|head| head.location.clone());
        if !response.is_good() && (location.is_none() || !(300..400).contains(&status)) {
            return Err(Error::new(Kind::Status, format!("status {status}")));
        }
        if response.is_good() {
            self.viewer.answered(request.asks, last - sent);
        }
        Ok(Answer {
            moved: None,
            location: location.map(String::into_boxed_str),
            is_redirect: !response.is_good(),
            first,
            last,
            took: last - sent,
            bytes: response.bytes,
        })
    }

    /// Returns the text of the request.
    fn text(&self, request: &Request<'_>) -> String {
        let url = request.url;
        let (method, payload) = match self.change {
            None => ("GET", None),
            Some(Change::Post { kind, payload }) => ("POST", Some((kind, payload))),
            Some(Change::Delete) => ("DELETE", None),
        };
        let mut text = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: streamgauge\r\nAccept: */*\r\n",
            url.target(),
            url.authority()
        );
        match request.range {
            None => {}
            Some((from, None)) => text += &format!("Range: bytes={from}-\r\n"),
            Some((from, Some(length))) => {
                let last = from.saturating_add(length).saturating_sub(1);
                text += &format!("Range: bytes={from}-{last}\r\n");
            }
        }
        if let Some((kind, payload)) = payload {
            let length = payload.len();
            text += &format!("Content-Type: {kind}\r\nContent-Length: {length}\r\n");
        }
        text += "\r\n";
        text += payload.map_or("", |(_, payload)| *payload);
        self.viewer.stats().requests += 1;
        self.viewer.lane.totals.requests.fetch_add(1, Relaxed);
        text
    }

    /// Reads once.
    fn read(
        &self,
        socket: &mut Socket,
        response: &mut Response,
        body: &mut Body<'_>,
    ) -> Result<(), Error> {
        let mut scratch = self.viewer.lane.scratch();
        let discard = match (response.discardable(), &*body) {
            (Some(left), Body::Discard) => Some(left),
            _ => None,
        };
        let read = match discard {
            Some(left) => {
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(scratch.len());
                let into = scratch.get_mut(..most).unwrap_or_default();
                socket.try_discard(into)
            }
            None => socket.try_read(&mut scratch),
        };
        match read {
            Ok(0) => response.close(),
            Ok(size) if discard.is_some() => {
                self.viewer.count_media(size);
                response.discard(size as u64);
                Ok(())
            }
            Ok(size) => response.read(scratch.get(..size).unwrap_or_default(), body, self.viewer),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(Error::io(&error, "reading")),
        }
    }
}
