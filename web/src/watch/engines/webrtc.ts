import { keepConnected } from '../../shared/ice';
import { capturedAt, endSession, sendOffer, videoClock } from '../../shared/whip';
import type { Failure } from '../condition';
import { type Engine, type EngineStats, httpFailure, NO_CHOICES, NO_STATS, type StartEngine } from './engine';

/** How long the connection may take, in milliseconds. */
const CONNECT = 5_000;
/** Time before a stream that has no media yet is asked for again, in milliseconds. */
const ASK_AGAIN = 300;
/** The server's answer for such a stream. Other answers of 503 say that it does not serve the page. */
const NO_MEDIA_YET = 'the stream has no media yet';
/** Time between reads of the connection's figures, in milliseconds. */
const EVERY = 1_000;

/** WebRTC, by WHEP. */
export const startWebrtc: StartEngine = (video, url, options, events): Engine => {
  const peer = new RTCPeerConnection();
  const asked = new AbortController();
  let session: string | null = null;
  let connected = false;
  let ended = false;
  /** Stops restarts of ICE, which begin once there is a connection. */
  let leaveIt: (() => void) | null = null;
  let figures: Pick<EngineStats, 'bitrate' | 'frameRate' | 'traffic'> = NO_STATS;
  /** When the figures were read, in milliseconds. */
  let readAt = 0;
  /** The video's clock, and the RTP time of the frame on the screen. */
  let clock: number | null = null;
  let shown: number | null = null;

  // LL-HLS needs no more than the HTTP that this page came by, and has B-frames and AAC.
  const fail = (failure: Failure) => {
    if (!ended) events.failed({ ...failure, instead: 'llhls' });
  };
  const lost = (detail: string) => {
    const blocked = 'There is no WebRTC connection, as in networks that block UDP.';
    fail({ kind: 'network', what: connected ? 'The WebRTC connection ended.' : blocked, detail });
  };
  const giveUpLater = () => setTimeout(() => lost(`${peer.connectionState} after ${CONNECT} ms`), CONNECT);
  let late = giveUpLater();
  peer.addEventListener('connectionstatechange', () => {
    if (peer.connectionState === 'connected') {
      connected = true;
      clearTimeout(late);
      if (session !== null) leaveIt ??= keepConnected(peer, session, () => lost('ICE did not restart'));
    }
    const isOver = peer.connectionState === 'failed' && leaveIt === null;
    if (isOver || peer.connectionState === 'closed') lost(peer.connectionState);
  });
  peer.addEventListener('track', ({ streams: [stream] }) => {
    if (stream && video.srcObject !== stream) video.srcObject = stream;
  });
  // Browsers without this do not tell how far behind the frame on the screen is.
  const note: VideoFrameRequestCallback = (_now, { rtpTimestamp }) => {
    if (ended) return;
    shown = rtpTimestamp ?? null;
    video.requestVideoFrameCallback(note);
  };
  if ('requestVideoFrameCallback' in video) video.requestVideoFrameCallback(note);
  const reading = setInterval(async () => {
    const next = {
      bitrate: null as number | null,
      frameRate: null as number | null,
      media: 0,
    };
    for (const one of (await peer.getStats()).values()) {
      if (one.type !== 'inbound-rtp') continue;
      next.media += one.bytesReceived ?? 0;
      if (one.kind !== 'video') continue;
      next.frameRate = one.framesPerSecond ?? null;
    }
    // Timers of a hidden page come late.
    const [now, before] = [performance.now(), figures.traffic?.media];
    if (before !== undefined) next.bitrate = ((next.media - before) * 8 * 1000) / (now - readAt);
    readAt = now;
    const { bitrate, frameRate, media } = next;
    figures = { bitrate, frameRate, traffic: { media, overhead: 0 } };
  }, EVERY);

  const agree = async () => {
    for (const kind of ['video', 'audio']) peer.addTransceiver(kind, { direction: 'recvonly' });
    await peer.setLocalDescription();
    const ask = () => sendOffer(url, peer, asked.signal, options.credentials);
    let answer = await ask();
    let text = await answer.text();
    while (answer.status === 503 && text.startsWith(NO_MEDIA_YET)) {
      // Nothing is wrong with the network.
      clearTimeout(late);
      await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN));
      if (!ended) late = giveUpLater();
      answer = await ask();
      text = await answer.text();
    }
    if (answer.status !== 201) {
      clearTimeout(late);
      // The server's sentence says why, such as that WebRTC cannot show B-frames.
      const what = answer.status === 406 ? `WebRTC does not carry it: ${text.trim()}.` : null;
      const kind = answer.status === 406 ? 'codec' : 'network';
      return fail({ kind, what: what ?? httpFailure('The stream', answer.status), detail: text });
    }
    session = answer.headers.get('location');
    clock = videoClock(text);
    if (ended) return endSession(peer, session);
    await peer.setRemoteDescription({ type: 'answer', sdp: text });
    events.manifest();
  };
  agree().catch((error: unknown) => lost(String(error)));
  // The server would count a page that was closed as a viewer for 10 s more.
  const leave = () => endSession(peer, session);
  addEventListener('pagehide', leave);

  return {
    name: 'WebRTC',
    stats() {
      if (clock === null || shown === null) return { ...NO_STATS, ...figures };
      return { ...NO_STATS, ...figures, shownAt: capturedAt(shown, clock, options.clock()) };
    },
    choices: () => NO_CHOICES,
    chooseAudio() {
      // The server sends one track of each kind.
    },
    chooseSubtitles() {
      // There are no subtitles.
    },
    goLive() {
      // It is always live.
      void video.play().catch(() => undefined);
    },
    hold() {
      // A pause keeps the frame; frames that come meanwhile are not shown later.
    },
    destroy() {
      ended = true;
      leaveIt?.();
      clearTimeout(late);
      clearInterval(reading);
      asked.abort();
      video.srcObject = null;
      removeEventListener('pagehide', leave);
      leave();
    },
  };
};
