/**
 * Restarts of ICE by WHIP (RFC 9725 4.3.3) and WHEP: where the network of a page changes, its session goes on with
 * other credentials, and by another way.
 */

import { anyOf, timeout } from './abort';

/**
 * How long a connection may be interrupted before ICE restarts, in milliseconds. Chromium tells of it up to 7 s after
 * the last packet came, and the server ends a session that is silent for 10 s.
 */
const INTERRUPTED = 1_000;
/** Time after which a restart that brought nothing is tried anew, in milliseconds. */
const TRY_AGAIN = 2_000;
/** How long an interruption may last in all, in milliseconds. */
const TRY_FOR = 10_000;
/** How long the server has to answer, in milliseconds. */
const ANSWER = 5_000;

/** The part of an offer that says with which credentials ICE restarts, RFC 8840 4.4. */
export function fragment(offer: string): string {
  const [session = '', media = ''] = offer.split(/^(?=m=)/m);
  const of = (part: string, wanted: RegExp) => part.split(/\r?\n/).filter((line) => wanted.test(line));
  const lines = [
    ...of(session, /^a=(group|ice-options):/),
    ...of(media, /^(m=|a=(mid|ice-options|ice-ufrag|ice-pwd|candidate):)/),
  ];
  return lines.map((line) => `${line}\r\n`).join('');
}

/** An answer with the credentials and the candidates of the server's fragment in the place of those before. */
export function renewed(answer: string, told: string): string {
  const of = (name: string) => told.split(/\r?\n/).filter((line) => line.startsWith(`a=${name}:`));
  const lines = answer.split(/\r?\n/).filter((line) => !/^a=(candidate:|end-of-candidates)/.test(line));
  let isFirst = true;
  const next = lines.flatMap((line) => {
    if (line.startsWith('a=ice-ufrag:')) return of('ice-ufrag').slice(0, 1);
    if (!line.startsWith('a=ice-pwd:')) return [line];
    // Candidates are those of the first media description, which stands for all.
    const candidates = isFirst ? of('candidate') : [];
    isFirst = false;
    return [...of('ice-pwd').slice(0, 1), ...candidates];
  });
  return next.join('\r\n');
}

/** Restarts ICE of a session. Returns the status of the server's answer. */
async function restart(peer: RTCPeerConnection, session: string, signal: AbortSignal): Promise<number> {
  // The server may know an offer before, of which no answer came.
  if (peer.signalingState === 'have-local-offer') await peer.setLocalDescription({ type: 'rollback' });
  peer.restartIce();
  await peer.setLocalDescription();
  const answer = await fetch(session, {
    method: 'PATCH',
    headers: { 'content-type': 'application/trickle-ice-sdpfrag', 'if-match': '*' },
    body: fragment(peer.localDescription?.sdp ?? ''),
    signal: anyOf(signal, timeout(ANSWER)),
  });
  const told = await answer.text();
  if (answer.status === 200) {
    const sdp = renewed(peer.currentRemoteDescription?.sdp ?? '', told);
    await peer.setRemoteDescription({ type: 'answer', sdp });
  }
  return answer.status;
}

/**
 * Restarts ICE when a connection is interrupted. Calls `lost` where the server refuses that, or where it does not
 * help in time. Returns a function that stops this.
 */
export function keepConnected(peer: RTCPeerConnection, session: string, lost: () => void): () => void {
  const stopped = new AbortController();
  /** Until when the connection must be there again, by `performance.now()`. Null while it is there. */
  let until: number | null = null;
  let next: ReturnType<typeof setTimeout> | undefined;
  /** Two restarts at once would mix their offers and answers. */
  let isRestarting = false;

  const stop = () => {
    stopped.abort();
    clearTimeout(next);
    peer.removeEventListener('iceconnectionstatechange', changed);
  };
  const giveUp = () => {
    stop();
    lost();
  };
  const attempt = async () => {
    if (until === null) return;
    if (performance.now() >= until) return giveUp();
    isRestarting = true;
    const status = await restart(peer, session, stopped.signal).catch(() => null);
    isRestarting = false;
    if (stopped.signal.aborted) return;
    // Without an answer, the network may be away. Restarts are limited, too.
    if (status !== 200 && status !== null && status !== 429) return giveUp();
    if (until !== null) next = setTimeout(attempt, Math.min(TRY_AGAIN, until - performance.now()));
  };
  const changed = () => {
    const state = peer.iceConnectionState;
    if (state === 'connected' || state === 'completed') {
      clearTimeout(next);
      until = null;
    } else if ((state === 'disconnected' || state === 'failed') && until === null) {
      until = performance.now() + TRY_FOR;
      // After a restart that is under way, another follows where it is needed.
      if (!isRestarting) next = setTimeout(attempt, INTERRUPTED);
    }
  };
  peer.addEventListener('iceconnectionstatechange', changed);
  return stop;
}
