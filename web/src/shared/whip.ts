/** What WHIP (RFC 9725) and WHEP have in common. */

import { timeout } from './abort';
import { NO_CREDENTIALS } from './credentials';

/** How long the server has to take the end of a session, in milliseconds. */
const LEAVE = 2_000;

/** Sends the server this connection's offer. 201 has the answer, and the session's address as `Location`. */
export function sendOffer(
  url: string,
  peer: RTCPeerConnection,
  signal: AbortSignal,
  { headers } = NO_CREDENTIALS,
): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/sdp', ...headers },
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
  void fetch(session, { method: 'DELETE', keepalive: true, signal: timeout(LEAVE) })
    .catch(() => undefined)
    .finally(() => peer.close());
}

/** From 1900, where NTP's time begins, to 1970, in milliseconds. */
const NTP_BEFORE_UNIX = 2_208_988_800_000;
/** RTP times of video in a millisecond, RFC 6184 8.2.1. */
const VIDEO_RATE = 90;

/** The RTP time of the video at the beginning of 1900, by an answer (RFC 7273 5.2). */
export function videoClock(answer: string): number | null {
  const video = answer.split(/^m=/m).find((media) => media.startsWith('video'));
  const direct = /^a=mediaclk:direct=(\d+)\s*$/m.exec(video ?? '')?.[1];
  return direct === undefined ? null : Number(direct);
}

/**
 * When a frame with this RTP time was captured, in milliseconds since 1970. RTP times begin anew every
 * 13 hours, so it is the time that is nearest to `now`.
 */
export function capturedAt(rtpTime: number, clock: number, now: number): number {
  const wrap = 2 ** 32;
  const shows = (clock + Math.round((now + NTP_BEFORE_UNIX) * VIDEO_RATE)) % wrap;
  const behind = (((shows - rtpTime) % wrap) + wrap) % wrap;
  return now - (behind < wrap / 2 ? behind : behind - wrap) / VIDEO_RATE;
}
