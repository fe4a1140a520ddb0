//! Answers to the commands and messages of a peer: who publishes what, and who plays what.

use std::sync::Arc;

use bytes::Bytes;
use http::Transport;
use live::{PublishError, PublisherInfo, Stream};
use media::flv::TagKind;
use protocol::rtmp::{Blame, PlayStart, ServerEvent, code};
use tokio::time::Instant;

use super::{App, Connection, Role};
use crate::access::{Action, Asked, Credentials, Grant, Rejected, Verdict};
use crate::events::{Event, refusal};
use crate::pace::Pace;
use crate::path::{StreamPath, of_rtmp, published_as, shown};
use crate::rtmp::lookup::{self, AccessRequest, Found, NoTitle, Wanted};
use crate::rtmp::publish::Publish;
use crate::rtmp::{Error, REFUSED, file, play};
use crate::sessions::{Doing, Meter, Who};
use crate::titles::flv;

/// Unreadable messages of a publisher: how many are logged, and after how many it is disconnected.
const IGNORED: (u32, u32) = (3, 32);

/// Bytes that may be in the kernel, unsent, for a player of a live stream. The limit keeps a slow
/// player's backlog in the window, where it can still be skipped.
const UNSENT: u32 = 128 << 10;

/// The same for a player of a file. Bytes in the kernel count as delivered, so the limit is lower.
const UNSENT_OF_FILE: u32 = 32 << 10;

impl<S: Transport + 'static> Connection<S> {
    pub(super) fn handle_event(&mut self, event: ServerEvent) -> Result<(), Error> {
        let now = self.shared.origin.now();
        match event {
            ServerEvent::Audio { timestamp, payload } => {
                self.take_tag(TagKind::Audio, timestamp, &payload);
            }
            ServerEvent::Video { timestamp, payload } => {
                self.take_tag(TagKind::Video, timestamp, &payload);
            }
            ServerEvent::Metadata { timestamp, payload, .. } => {
                self.take_tag(TagKind::Script, timestamp, &payload);
            }
            ServerEvent::Connect { app, query, flash_ver, .. } => {
                self.connect(app, query, &flash_ver)?;
            }
            ServerEvent::PublishRequest { app, name, query, .. } => {
                // Where the application is the whole path, the query is the application's.
                let query = if name.is_empty() { self.app.query.clone() } else { query };
                self.publish(&of_rtmp(&app, &name), &query)?;
            }
            ServerEvent::PlayRequest { app, name, query, start, duration } => {
                let path = of_rtmp(&app, &name);
                if StreamPath::parse(&path).is_none() {
                    return self.refuse_unknown(&path);
                }
                let request = AccessRequest::Play { path, query, start, duration };
                self.ask_access(request)?;
            }
            ServerEvent::StreamLength { name, query, transaction } => {
                let path = of_rtmp(&self.app.path, &name);
                if let Some(StreamPath::Vod(_)) = StreamPath::parse(&path) {
                    self.ask_access(AccessRequest::Length { path, query, transaction })?;
                }
            }
            ServerEvent::Seek { position } => match &mut self.role {
                Role::File(play) => {
                    let position = play.seek(position, now);
                    self.session.accept_seek(position as f64)?;
                }
                _ => self.session.reject_seek("live streams do not seek")?,
            },
            ServerEvent::Pause { paused, .. } => {
                let rested = self.is_at_rest();
                match &mut self.role {
                    Role::Play(play) => play.pause(paused),
                    Role::File(play) => play.pause(paused, now),
                    Role::None | Role::Publish(_) => {}
                }
                // A second pause does not extend the time at rest.
                if !rested {
                    self.heard = Instant::now();
                }
            }
            ServerEvent::Ignored(error) => self.ignore(error)?,
            ServerEvent::Close { .. } => {
                self.drop_role();
                self.again = None;
                self.heard = Instant::now();
            }
            ServerEvent::BufferLength { .. } | ServerEvent::Pong { .. } => {}
            // The enum may grow; new events need no action.
            _ => {}
        }
        Ok(())
    }

    fn connect(&mut self, app: String, query: String, program: &str) -> Result<(), Error> {
        let peer = self.peer;
        match self.shared.origin.access.connects(query, program, peer.ip()) {
            Ok(query) => {
                *self.app = App { path: app, query, grant: Grant::default() };
                self.session.accept_connect()?;
            }
            Err(Rejected { told, why }) => {
                if let Some(why) = why {
                    tracing::warn!(%peer, app = shown(&app), %why, "connection refused");
                }
                self.session.reject_connect(code::CONNECT_REJECTED, &told)?;
                self.leaves = true;
            }
        }
        Ok(())
    }

    /// Takes a publisher's tag. A publisher that may not go on is told why and leaves.
    fn take_tag(&mut self, kind: TagKind, timestamp: u32, payload: &Bytes) {
        let Role::Publish(publish) = &mut self.role else { return };
        self.heard = Instant::now();
        if let Err(error) = publish.handle_tag(kind, timestamp, payload, self.shared.origin.now()) {
            self.dismiss(&error.to_string(), error.into());
        }
    }

    /// Counts a message that could not be read. A few are allowed.
    fn ignore(&mut self, error: protocol::rtmp::Error) -> Result<(), Error> {
        if error.blame == Blame::LimitExceeded {
            return Err(error.into());
        }
        let (logged, most) = IGNORED;
        self.ignored = self.ignored.saturating_add(1);
        if self.ignored > most && error.blame == Blame::PeerMisbehaved {
            return Err(Error::Garbage(error));
        }
        if self.ignored <= logged {
            tracing::warn!(peer = %self.peer, stream = self.name(), %error, "rtmp message ignored");
        }
        Ok(())
    }

    fn publish(&mut self, path: &str, query: &str) -> Result<(), Error> {
        let peer = self.peer;
        let Some(StreamPath::Live(name)) = StreamPath::parse(path) else {
            tracing::warn!(%peer, path = shown(path), "publish refused: not below live/");
            return self.refuse(code::PUBLISH_BAD_NAME, "streams are named live/NAME");
        };
        let (name, query) = (name.to_owned(), query.to_owned());
        self.ask_access(AccessRequest::Publish { name, query })
    }

    /// Finds out whether the peer may do what it asks for, at once if possible.
    fn ask_access(&mut self, request: AccessRequest) -> Result<(), Error> {
        let (action, query) = match &request {
            AccessRequest::Publish { name, query } => {
                (Some(Action::Publish(StreamPath::Live(name))), &**query)
            }
            AccessRequest::Play { path, query, .. } | AccessRequest::Length { path, query, .. } => {
                (StreamPath::parse(path).map(Action::Play), &**query)
            }
        };
        let Some(action) = action else { return Ok(()) };
        if !matches!(request, AccessRequest::Length { .. }) {
            self.traced(action);
        }
        let credentials =
            Credentials { query, query_of_app: &self.app.query, ..Credentials::default() };
        let asked = Asked { action, peer: self.peer, protocol: "rtmp", credentials, lasts: true };
        match self.shared.origin.access.at_once(&asked) {
            Ok(verdict) => self.decided(verdict, request),
            Err(attempt) => {
                self.lookup = Some(lookup::access(&self.shared.origin, attempt, request));
                Ok(())
            }
        }
    }

    /// Notes what the peer asks for.
    fn traced(&mut self, action: Action<'_>) {
        let (doing, path) = match action {
            Action::Publish(path) => (Doing::Publish, path),
            Action::Play(path) => (Doing::Play, path),
            _ => return,
        };
        self.shared.origin.traces.connection_asks(&mut self.trace, (doing, "rtmp"), &path);
    }

    /// Does what the peer asked for, or tells why not.
    fn decided(&mut self, verdict: Verdict, request: AccessRequest) -> Result<(), Error> {
        let peer = self.peer;
        if !matches!(request, AccessRequest::Length { .. }) {
            self.trace.phase("access");
        }
        let grant = match (verdict, &request) {
            (Ok(grant), _) => grant,
            (Err(why), AccessRequest::Publish { name, .. }) => {
                tracing::warn!(%peer, stream = shown(name), %why, "publish refused");
                self.tell_refused(name, &why);
                return self.refuse(code::PUBLISH_BAD_NAME, &why.to_string());
            }
            (Err(why), AccessRequest::Play { path, .. }) => {
                tracing::info!(%peer, path = shown(path), %why, "play refused");
                self.trace.failed(&why);
                self.session.reject_play(code::PLAY_FAILED, &why.to_string())?;
                return self.count_refusal();
            }
            // RTMP has no negative answer to this request.
            (Err(_), AccessRequest::Length { .. }) => return self.count_refusal(),
        };
        match request {
            AccessRequest::Publish { name, query } => {
                self.app.grant = grant;
                self.publish_allowed(&name, &query)
            }
            AccessRequest::Play { path, query, start, duration } => {
                self.app.grant = grant;
                match StreamPath::parse(&path) {
                    Some(StreamPath::Vod(path)) => {
                        self.look_up_to_play(path.to_owned(), &query, start, duration)
                    }
                    Some(StreamPath::Live(name)) => self.play(name),
                    None => self.refuse_unknown(&path),
                }
            }
            AccessRequest::Length { path, transaction, .. } => {
                if let Some(StreamPath::Vod(path)) = StreamPath::parse(&path) {
                    self.look_up(path.to_owned(), Wanted::Length { transaction });
                }
                Ok(())
            }
        }
    }

    /// Lists the peer as one that publishes or plays. Returns what counts its bytes.
    fn list(&mut self, doing: Doing, path: StreamPath<'_>) -> Meter {
        let who = Who { doing, path: path.to_string(), by: "rtmp", peer: self.peer };
        let listed = self.shared.origin.sessions.begin(who, self.app.grant.clone());
        self.listed.insert(Box::new(listed)).meter().clone()
    }

    fn publish_allowed(&mut self, name: &str, query: &str) -> Result<(), Error> {
        let (role, _) = published_as(query);
        if self.shared.origin.may_fetch(name, role) {
            let lookup = lookup::fetch(&self.shared.origin, name.to_owned(), query.to_owned());
            self.lookup = Some(lookup);
            return Ok(());
        }
        self.begin_to_publish(name, query)
    }

    fn begin_to_publish(&mut self, name: &str, query: &str) -> Result<(), Error> {
        let peer = self.peer;
        let (role, rendition) = published_as(query);
        if !self.admission.take(&self.shared.publishers) {
            let limit = self.shared.origin.config.rtmp.max_publishers;
            tracing::warn!(%peer, stream = shown(name), limit, "publish refused: too many publishers");
            self.tell_refused(name, &"too many publishers");
            self.trace.failed(&"too many publishers");
            self.session.reject_publish(code::PUBLISH_DENIED, "too many publishers")?;
            self.leaves = true;
            return Ok(());
        }
        let info = PublisherInfo { peer: Some(peer), protocol: "rtmp", rendition };
        match self.shared.origin.publish(name, role, info) {
            Ok(publisher) => {
                let meter = self.list(Doing::Publish, StreamPath::Live(publisher.name()));
                let trace = std::mem::take(&mut self.trace);
                self.role = Role::Publish(Box::new(Publish::new(publisher, meter, trace)));
                self.heard = Instant::now();
                self.session.accept_publish()?;
            }
            Err(error) => {
                let (error, why) = refusal(error);
                tracing::warn!(%peer, stream = shown(name), %error, "publish refused");
                self.tell_refused(name, &why);
                let code = match error {
                    PublishError::InUse(_)
                    | PublishError::Elsewhere
                    | PublishError::BadName(_)
                    | PublishError::BadRendition(_)
                    | PublishError::BackupOfRendition => code::PUBLISH_BAD_NAME,
                    _ => code::PUBLISH_DENIED,
                };
                return self.refuse(code, &why);
            }
        }
        Ok(())
    }

    fn tell_refused(&self, name: &str, why: &dyn std::fmt::Display) {
        let path = StreamPath::Live(shown(name)).to_string();
        self.shared.origin.events.tell(Event::refused(&path, "rtmp", self.peer, why));
    }

    /// Refuses a request to publish. The peer may ask again, up to [`REFUSED`] times.
    fn refuse(&mut self, code: &str, why: &str) -> Result<(), Error> {
        self.trace.failed(&why);
        self.session.reject_publish(code, why)?;
        self.count_refusal()
    }

    fn count_refusal(&mut self) -> Result<(), Error> {
        self.refused += 1;
        if self.refused < REFUSED { Ok(()) } else { Err(Error::Refused) }
    }

    /// Tells a player that no stream has this name.
    fn refuse_unknown(&mut self, path: &str) -> Result<(), Error> {
        tracing::debug!(peer = %self.peer, path = shown(path), "play: no such stream");
        self.trace.failed(&"no such stream");
        self.session.reject_play(code::PLAY_STREAM_NOT_FOUND, "no such stream")?;
        Ok(())
    }

    fn play(&mut self, name: &str) -> Result<(), Error> {
        let origin = &self.shared.origin;
        match origin.known(name) {
            Some(stream) => self.play_live(name, stream),
            None if origin.cluster.get().is_none() => self.refuse_unknown(name),
            None => {
                self.lookup = Some(lookup::live(origin, name.to_owned()));
                Ok(())
            }
        }
    }

    fn play_live(&mut self, name: &str, stream: Arc<Stream>) -> Result<(), Error> {
        if !self.admission.take(&self.shared.players) {
            return self.refuse_player(name);
        }
        let meter = self.list(Doing::Play, StreamPath::Live(stream.name()));
        let limits = self.shared.origin.viewer_limits();
        let play = play::Play::new(stream, (self.peer, meter), limits);
        self.role = Role::Play(Box::new(play));
        self.keep_unsent(UNSENT);
        self.session.accept_play(false)?;
        Ok(())
    }

    /// Tells a player that there are too many players.
    fn refuse_player(&mut self, path: &str) -> Result<(), Error> {
        let limit = self.shared.origin.config.rtmp.max_players;
        tracing::warn!(peer = %self.peer, path = shown(path), limit, "play refused: too many players");
        let limit = "rtmp.max_players";
        self.trace.failed(&"too many players");
        self.shared.origin.events.tell(Event::ViewerLimit { limit, refused: 1 });
        self.session.reject_play(code::PLAY_FAILED, "too many players")?;
        self.leaves = true;
        Ok(())
    }

    fn look_up_to_play(
        &mut self,
        path: String,
        query: &str,
        start: PlayStart,
        duration: Option<f64>,
    ) -> Result<(), Error> {
        let start = match start {
            PlayStart::Any => 0.0,
            PlayStart::At(start) => start,
            // 7.2.2.1: the player asks for a live stream, and a file is none.
            PlayStart::Live => {
                self.trace.failed(&"files are not live");
                self.session.reject_play(code::PLAY_STREAM_NOT_FOUND, "files are not live")?;
                return Ok(());
            }
        };
        let plan = self.shared.origin.config.vod.plan(Pace::from_query(query));
        self.look_up(path.clone(), Wanted::Play { path, plan, start, duration });
        Ok(())
    }

    /// Looks for a title. Until this is done, no more input of the peer is read.
    fn look_up(&mut self, path: String, wanted: Wanted) {
        self.lookup = Some(lookup::title(&self.shared.origin, path, wanted));
    }

    pub(super) fn found(&mut self, found: Found) -> Result<(), Error> {
        let (flv_title, wanted) = match found {
            Found::Title { flv_title, wanted } => (flv_title, wanted),
            Found::Fetched { name, query } => return self.begin_to_publish(&name, &query),
            Found::Decided { verdict, request } => return self.decided(verdict, request),
            Found::Live { name, stream: Ok(Some(stream)) } => return self.play_live(&name, stream),
            Found::Live { name, stream: Ok(None) } => return self.refuse_unknown(&name),
            Found::Live { name, stream: Err(error) } => {
                tracing::warn!(peer = %self.peer, stream = shown(&name), %error, "play refused");
                self.trace.failed(&error);
                self.session.reject_play(code::PLAY_FAILED, &error.to_string())?;
                return Ok(());
            }
        };
        match (flv_title, wanted) {
            (Ok(flv_title), Wanted::Length { transaction }) => {
                self.session.answer_stream_length(transaction, flv_title.duration().as_secs_f64());
            }
            // RTMP has no negative answer to this request.
            (Err(_), Wanted::Length { .. }) => {}
            (Ok(flv_title), Wanted::Play { path, plan, start, duration }) => {
                if !self.admission.take(&self.shared.players) {
                    return self.refuse_player(&path);
                }
                let play = file::Play::new(&self.shared.origin, flv_title, plan, start, duration);
                tracing::debug!(peer = %self.peer, path = play.path(), "plays");
                self.list(Doing::Play, StreamPath::Vod(play.path()));
                self.role = Role::File(Box::new(play));
                self.keep_unsent(UNSENT_OF_FILE);
                self.session.accept_play(true)?;
            }
            (Err(NoTitle::NotFound), Wanted::Play { path, .. }) => {
                tracing::debug!(peer = %self.peer, path = shown(&path), "play: no such file");
                self.trace.failed(&"no such file");
                self.session.reject_play(code::PLAY_STREAM_NOT_FOUND, "no such file")?;
            }
            (Err(NoTitle::Failed(reason)), Wanted::Play { path, .. }) => {
                tracing::warn!(peer = %self.peer, path = shown(&path), reason, "play refused");
                self.trace.failed(&reason);
                self.session.reject_play(code::PLAY_FAILED, &reason)?;
            }
            (Err(NoTitle::Unread(reason)), Wanted::Play { path, .. }) => {
                tracing::warn!(peer = %self.peer, path = shown(&path), reason, "play refused");
                self.trace.failed(&"the file cannot be read now");
                self.session.reject_play(code::PLAY_FAILED, "the file cannot be read now")?;
            }
        }
        Ok(())
    }

    /// Ends the playback of a title that failed.
    pub(super) fn fail(&mut self, error: &flv::Error) {
        tracing::warn!(peer = %self.peer, stream = self.name(), %error, "playing failed");
        self.trace.failed(error);
        self.session.send_status("error", code::PLAY_FAILED, &error.to_string());
        self.collect();
    }

    fn keep_unsent(&self, bytes: u32) {
        if let Err(error) = self.socket.bound_unsent(bytes) {
            tracing::debug!(peer = %self.peer, %error, "socket options");
        }
    }
}
