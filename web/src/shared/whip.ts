/** What WHIP (RFC 9725) and WHEP have in common. */

/** How long the server has to take the end of a session, in milliseconds. */
const LEAVE = 2_000;

/** Sends the server this connection's offer. 201 has the answer, and the session's address as `Location`. */
export function sendOffer(url: string, peer: RTCPeerConnection, signal: AbortSignal): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/sdp' },
    body: peer.localDescription?.sdp ?? '',
    signal,
  });
}

/**
 * Ends a session, and then its connection: a server ends the session of a connection that closes, and
 * would not find it any more. The request outlives the page.
 */
export function endSession(peer: RTCPeerConnection, session: string | null): void {
  if (session === null) {
    peer.close();
    return;
  }
  void fetch(session, { method: 'DELETE', keepalive: true, signal: AbortSignal.timeout(LEAVE) })
    .catch(() => undefined)
    .finally(() => peer.close());
}
