//! Codes of information objects (RTMP 1.0, 7.2.2). They come from the NetConnection and NetStream
//! classes of ActionScript.

/// The connection is accepted.
pub const CONNECT_SUCCESS: &str = "NetConnection.Connect.Success";
/// The connection is refused.
pub const CONNECT_REJECTED: &str = "NetConnection.Connect.Rejected";
/// The connection is refused: no such application.
pub const CONNECT_INVALID_APP: &str = "NetConnection.Connect.InvalidApp";
/// Enhanced RTMP v2: a request to connect again, possibly to another server.
pub const RECONNECT_REQUEST: &str = "NetConnection.Connect.ReconnectRequest";
/// A command is unknown or failed.
pub const CALL_FAILED: &str = "NetConnection.Call.Failed";
/// Publishing may begin.
pub const PUBLISH_START: &str = "NetStream.Publish.Start";
/// The name already has a publisher, or the name is not allowed.
pub const PUBLISH_BAD_NAME: &str = "NetStream.Publish.BadName";
/// Publishing is refused for lack of permission.
pub const PUBLISH_DENIED: &str = "NetStream.Publish.Denied";
/// An error without a code of its own.
pub const FAILED: &str = "NetStream.Failed";
/// Publishing has ended.
pub const UNPUBLISH_SUCCESS: &str = "NetStream.Unpublish.Success";
/// The play list was reset.
pub const PLAY_RESET: &str = "NetStream.Play.Reset";
/// Playing begins.
pub const PLAY_START: &str = "NetStream.Play.Start";
/// There is no stream of that name.
pub const PLAY_STREAM_NOT_FOUND: &str = "NetStream.Play.StreamNotFound";
/// Playing failed for another reason.
pub const PLAY_FAILED: &str = "NetStream.Play.Failed";
/// Playing stopped.
pub const PLAY_STOP: &str = "NetStream.Play.Stop";
/// Everything was played (in an `onPlayStatus` data message).
pub const PLAY_COMPLETE: &str = "NetStream.Play.Complete";
/// The stream's publisher went.
pub const PLAY_UNPUBLISH_NOTIFY: &str = "NetStream.Play.UnpublishNotify";
/// Paused.
pub const PAUSE_NOTIFY: &str = "NetStream.Pause.Notify";
/// Playing again after a pause.
pub const UNPAUSE_NOTIFY: &str = "NetStream.Unpause.Notify";
/// Playing continues from the requested position.
pub const SEEK_NOTIFY: &str = "NetStream.Seek.Notify";
/// Seeking is not possible.
pub const SEEK_FAILED: &str = "NetStream.Seek.Failed";
