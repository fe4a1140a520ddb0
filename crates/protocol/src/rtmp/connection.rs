//! Common parts of server and client sessions: handshake, chunk streams, protocol control.

use bytes::Bytes;

use super::amf0::Value;
use super::chunk::{self, Measured, Read, Reader, Writer, csid};
use super::handshake::Handshake;
use super::message::{self, Limits, Message, UserControl};
use super::output::Output;
use super::{Error, command};

/// While this many bytes of answers wait to be sent, no more input is taken.
const MAX_ANSWERS: usize = 64 << 10;

/// Input that concerns the session, not only the connection.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The handshake is complete; nothing has been sent after it.
    Ready,
    UserControl(UserControl),
    /// Media, data or a command.
    Message(Message),
    Measured(Measured),
    Skipped(Error),
}

#[derive(Debug)]
pub(crate) struct Connection {
    // These are rare or short-lived, so they are boxed: an idle session has no room for them.
    handshake: Option<Box<Handshake>>,
    failed: Option<Box<Error>>,
    reader: Reader,
    writer: Writer,
    out: Output,
    /// Bytes of answers queued since the output was last empty.
    answers: usize,
    /// Bytes received in all, and those at the last acknowledgement.
    received: u64,
    acknowledged: u64,
    /// The window that the peer set for our acknowledgements; 0 before it set one.
    window: u32,
    /// The window that was last sent to the peer.
    own_window: u32,
    measure_media: bool,
}

impl Connection {
    pub(crate) fn server(nonce: u64) -> Self {
        Self::new(Handshake::server(nonce), Output::default())
    }

    pub(crate) fn client(nonce: u64) -> Self {
        let mut bytes = Vec::new();
        let handshake = Handshake::client(nonce, &mut bytes);
        let mut out = Output::default();
        out.copy(&bytes);
        Self::new(handshake, out)
    }

    fn new(handshake: Handshake, out: Output) -> Self {
        let mut reader = Reader::new(Limits::default(), 0);
        reader.set_discard_media(true);
        Self {
            handshake: Some(Box::new(handshake)),
            reader,
            writer: Writer::default(),
            out,
            answers: 0,
            received: 0,
            acknowledged: 0,
            window: 0,
            own_window: 0,
            measure_media: false,
            failed: None,
        }
    }

    /// Takes input until there is something for the session. `None` when the input is used up, or
    /// when too many answers wait to be sent.
    ///
    /// An error is final: every later call returns it again.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Incoming>, Error> {
        if let Some(error) = &self.failed {
            return Err(Error::clone(error));
        }
        let result = self.try_next(input);
        if let Err(error) = &result {
            self.fail(error.clone());
        }
        result
    }

    pub(crate) fn fail(&mut self, error: Error) {
        self.failed.get_or_insert_with(|| Box::new(error));
    }

    fn try_next(&mut self, input: &mut &[u8]) -> Result<Option<Incoming>, Error> {
        while self.answers < MAX_ANSWERS {
            let before = input.len();
            if let Some(handshake) = &mut self.handshake {
                let mut answer = Vec::new();
                let done = handshake.handle_input(input, self.received, &mut answer)?;
                self.received += (before - input.len()) as u64;
                self.out.copy(&answer);
                if !done {
                    return Ok(None);
                }
                self.handshake = None;
                self.reader = Reader::new(Limits::default(), self.received);
                self.reader.set_discard_media(true);
                self.reader.set_measure_media(self.measure_media);
                return Ok(Some(Incoming::Ready));
            }
            let read = self.reader.read(input);
            self.received += (before - input.len()) as u64;
            match read? {
                None => return Ok(None),
                Some(Read::Skipped(error)) => return Ok(Some(Incoming::Skipped(error))),
                Some(Read::Measured(measured)) => return Ok(Some(Incoming::Measured(measured))),
                Some(Read::Message(message)) => {
                    if let Some(incoming) = self.control(message)? {
                        return Ok(Some(incoming));
                    }
                }
            }
        }
        Ok(None)
    }

    fn control(&mut self, message: Message) -> Result<Option<Incoming>, Error> {
        match message.kind {
            // Real players send acknowledgements irregularly, so nothing may depend on them.
            message::ACKNOWLEDGEMENT => {
                message::control_word(&message)?;
            }
            message::WINDOW_ACK_SIZE => self.window = message::control_word(&message)?,
            message::SET_PEER_BANDWIDTH => {
                let window = message::control_word(&message)?;
                // 5.4.5: answered where the window differs from the one sent last.
                if window != self.own_window {
                    self.send_window(window);
                }
            }
            message::USER_CONTROL => match UserControl::read(&message)? {
                UserControl::PingRequest(time) => {
                    self.send_user_control(UserControl::PingResponse(time));
                }
                event => return Ok(Some(Incoming::UserControl(event))),
            },
            _ => return Ok(Some(Incoming::Message(message))),
        }
        Ok(None)
    }

    /// Sends an acknowledgement if one is due (5.4.3): at most one per call, however small the
    /// window.
    pub(crate) fn acknowledge(&mut self) {
        if self.window > 0 && self.received - self.acknowledged >= u64::from(self.window) {
            self.acknowledged = self.received;
            // The sequence number wraps.
            let sequence = self.received as u32;
            self.send_control(message::ACKNOWLEDGEMENT, &sequence.to_be_bytes());
        }
    }

    pub(crate) fn position(&self) -> u64 {
        self.received
    }

    /// See [`Reader::media_bytes`].
    pub(crate) fn media_bytes(&self) -> u64 {
        self.reader.media_bytes()
    }

    pub(crate) fn allocated(&self) -> usize {
        self.reader.allocated()
    }

    /// Releases spare memory.
    pub(crate) fn shrink(&mut self) {
        self.reader.shrink();
        self.writer.shrink();
        self.out.shrink();
    }

    pub(crate) fn set_discard_media(&mut self, discard: bool) {
        self.reader.set_discard_media(discard);
    }

    /// Measures media from the end of the handshake on; see [`Reader::set_measure_media`].
    pub(crate) fn measure_media(&mut self) {
        self.measure_media = true;
    }

    /// See [`Reader::front`].
    pub(crate) fn front(&self) -> &[u8] {
        self.reader.front()
    }

    pub(crate) fn poll_output(&mut self) -> Option<Bytes> {
        let piece = self.out.poll();
        if self.out.len() == 0 {
            self.answers = 0;
        }
        piece
    }

    pub(crate) fn output_len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn send_window(&mut self, window: u32) {
        self.own_window = window;
        self.send_control(message::WINDOW_ACK_SIZE, &window.to_be_bytes());
    }

    /// Sends Set Peer Bandwidth with limit type 2, dynamic (5.4.5).
    pub(crate) fn send_peer_bandwidth(&mut self, window: u32) {
        let mut payload = window.to_be_bytes().to_vec();
        payload.push(2);
        self.send_control(message::SET_PEER_BANDWIDTH, &payload);
    }

    pub(crate) fn send_chunk_size(&mut self, size: usize) {
        let size = size.clamp(1, chunk::MAX_SIZE);
        self.send_control(message::SET_CHUNK_SIZE, &(size as u32).to_be_bytes());
        self.writer.set_chunk_size(size);
    }

    pub(crate) fn send_user_control(&mut self, event: UserControl) {
        self.send_control(message::USER_CONTROL, &event.payload());
    }

    fn send_control(&mut self, kind: u8, payload: &[u8]) {
        self.send((csid::CONTROL, kind, 0), 0, Bytes::copy_from_slice(payload));
    }

    pub(crate) fn send_command(
        &mut self,
        stream_id: u32,
        name: &str,
        transaction: f64,
        arguments: &[Value],
    ) {
        let payload = command::payload(name, transaction, arguments);
        self.send((csid::COMMAND, message::COMMAND_AMF0, stream_id), 0, payload.into());
    }

    pub(crate) fn send_status(
        &mut self,
        stream_id: u32,
        level: &str,
        code: &str,
        description: &str,
    ) {
        let information = Value::Object(command::information(level, code, description));
        self.send_command(stream_id, "onStatus", 0.0, &[Value::Null, information]);
    }

    fn send(&mut self, place: (u32, u8, u32), timestamp: u32, payload: Bytes) {
        let before = self.out.len();
        self.writer.message(&mut self.out, place, timestamp, payload);
        self.answers += self.out.len() - before;
    }

    /// Queues media or data. They do not count as answers.
    pub(crate) fn send_media(
        &mut self,
        kind: u8,
        stream_id: u32,
        timestamp: u32,
        payload: Bytes,
    ) -> Result<(), Error> {
        if payload.len() > chunk::MAX_SIZE {
            return Err(self.refuse(format!("sending a message of {} bytes", payload.len())));
        }
        let csid = match kind {
            message::AUDIO => csid::AUDIO,
            message::VIDEO => csid::VIDEO,
            _ => csid::DATA,
        };
        self.writer.message(&mut self.out, (csid, kind, stream_id), timestamp, payload);
        Ok(())
    }

    /// An error about a call that the session's state does not allow.
    pub(crate) fn refuse(&self, what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::caller(what, self.received)
    }
}
