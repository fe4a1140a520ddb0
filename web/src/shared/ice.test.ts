import { expect, test, vi } from 'vitest';
import { fragment, keepConnected, renewed } from './ice';

const OFFER = [
  'v=0',
  'a=group:BUNDLE 0 1',
  'a=msid-semantic: WMS',
  'm=video 9 UDP/TLS/RTP/SAVPF 96',
  'c=IN IP4 0.0.0.0',
  'a=candidate:1 1 udp 5 192.0.2.1 9 typ host',
  'a=ice-ufrag:new',
  'a=ice-pwd:secret',
  'a=ice-options:trickle',
  'a=fingerprint:sha-256 00',
  'a=mid:0',
  'm=audio 9 UDP/TLS/RTP/SAVPF 111',
  'a=ice-ufrag:new',
  'a=ice-pwd:secret',
  'a=mid:1',
  '',
].join('\r\n');

test('a fragment says what is new of ICE, once', () => {
  expect(fragment(OFFER).split('\r\n')).toEqual([
    'a=group:BUNDLE 0 1',
    'm=video 9 UDP/TLS/RTP/SAVPF 96',
    'a=candidate:1 1 udp 5 192.0.2.1 9 typ host',
    'a=ice-ufrag:new',
    'a=ice-pwd:secret',
    'a=ice-options:trickle',
    'a=mid:0',
    '',
  ]);
});

test('an answer gets what the server tells, and keeps the rest', () => {
  const answer = [
    'v=0',
    'm=video 9 x 96',
    'a=candidate:1 1 udp 5 192.0.2.1 1 typ host',
    'a=end-of-candidates',
    'a=ice-ufrag:old',
    'a=ice-pwd:older',
    'a=mid:0',
    'm=audio 9 x 111',
    'a=ice-ufrag:old',
    'a=ice-pwd:older',
    '',
  ];
  const told = 'a=ice-lite\r\na=ice-ufrag:U\r\na=ice-pwd:P\r\na=candidate:2 1 udp 5 192.0.2.2 1 typ host\r\n';
  expect(renewed(answer.join('\r\n'), told).split('\r\n')).toEqual([
    'v=0',
    'm=video 9 x 96',
    'a=ice-ufrag:U',
    'a=ice-pwd:P',
    'a=candidate:2 1 udp 5 192.0.2.2 1 typ host',
    'a=mid:0',
    'm=audio 9 x 111',
    'a=ice-ufrag:U',
    'a=ice-pwd:P',
    '',
  ]);
});

/** A connection whose state the test sets, and the requests that it makes. */
class Peer extends EventTarget {
  iceConnectionState = 'connected';
  signalingState = 'stable';
  localDescription = { sdp: OFFER };
  currentRemoteDescription = { sdp: 'a=ice-ufrag:old\r\na=ice-pwd:older\r\n' };
  steps: string[] = [];
  restartIce() {
    this.steps.push('restart');
  }
  async setLocalDescription(description?: { type: string }) {
    this.steps.push(description?.type ?? 'offer');
    this.signalingState = description ? 'stable' : 'have-local-offer';
  }
  async setRemoteDescription({ sdp }: { sdp: string }) {
    this.steps.push(sdp.trim().replaceAll('\r\n', ' '));
    this.signalingState = 'stable';
  }
  set(state: string) {
    this.iceConnectionState = state;
    this.dispatchEvent(new Event('iceconnectionstatechange'));
  }
}

/** Keeps a connection whose server answers like this, and counts how often it was given up. */
function kept(answers: (number | Error | Promise<number>)[]) {
  vi.useFakeTimers();
  const peer = new Peer();
  const asked: [string, RequestInit][] = [];
  vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
    asked.push([url, init]);
    const answer = answers.shift() ?? 500;
    if (answer instanceof Error) throw answer;
    return { status: await answer, text: async () => 'a=ice-ufrag:U\r\na=ice-pwd:P\r\n' };
  });
  const state = { peer, asked, lost: 0, stop: () => {} };
  const connection = peer as unknown as RTCPeerConnection;
  state.stop = keepConnected(connection, '/session', () => {
    state.lost += 1;
  });
  return state;
}

test('a short interruption restarts nothing', async () => {
  const state = kept([]);
  state.peer.set('disconnected');
  await vi.advanceTimersByTimeAsync(900);
  state.peer.set('connected');
  await vi.advanceTimersByTimeAsync(60_000);
  expect(state.peer.steps).toEqual([]);
  expect(state.lost).toBe(0);
});

test('a longer one restarts ICE, and again where that does not help', async () => {
  const state = kept([200, 429, new Error('no network'), 200]);
  state.peer.set('disconnected');
  await vi.advanceTimersByTimeAsync(1_000);
  expect(state.peer.steps).toEqual(['restart', 'offer', 'a=ice-ufrag:U a=ice-pwd:P']);
  const [[url, { method, headers }] = ['', {}]] = state.asked;
  expect([url, method]).toEqual(['/session', 'PATCH']);
  expect(headers).toMatchObject({ 'if-match': '*', 'content-type': 'application/trickle-ice-sdpfrag' });
  // ICE begins anew, which is no end of the interruption.
  state.peer.set('checking');
  state.peer.set('failed');
  state.peer.steps = [];
  await vi.advanceTimersByTimeAsync(6_000);
  const again = ['rollback', 'restart', 'offer'];
  expect(state.peer.steps).toEqual(['restart', 'offer', ...again, ...again, 'a=ice-ufrag:U a=ice-pwd:P']);
  state.peer.set('connected');
  await vi.advanceTimersByTimeAsync(60_000);
  expect(state.asked.length).toBe(4);
  expect(state.lost).toBe(0);
  // The next interruption has as long.
  state.peer.set('failed');
  await vi.advanceTimersByTimeAsync(1_000);
  expect(state.asked.length).toBe(5);
});

test('no restart begins beside another', async () => {
  let late: (status: number) => void = () => {};
  const state = kept([new Promise<number>((resolve) => (late = resolve)), 200]);
  state.peer.set('disconnected');
  await vi.advanceTimersByTimeAsync(1_000);
  expect(state.asked.length).toBe(1);
  state.peer.set('connected');
  state.peer.set('disconnected');
  await vi.advanceTimersByTimeAsync(3_000);
  expect(state.asked.length).toBe(1);
  late(200);
  await vi.advanceTimersByTimeAsync(1_999);
  expect(state.asked.length).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(state.asked.length).toBe(2);
});

test('a connection is given up where the server refuses, and where nothing helps', async () => {
  for (const status of [404, 405, 422]) {
    const state = kept([status]);
    state.peer.set('failed');
    await vi.advanceTimersByTimeAsync(1_000);
    expect(state.lost).toBe(1);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(state.asked.length).toBe(1);
  }
  const state = kept([200, 200, 200, 200, 200, 200]);
  state.peer.set('disconnected');
  await vi.advanceTimersByTimeAsync(9_900);
  expect(state.lost).toBe(0);
  await vi.advanceTimersByTimeAsync(100);
  expect([state.lost, state.asked.length]).toEqual([1, 5]);
});

test('who has stopped it hears nothing more', async () => {
  const state = kept([404]);
  state.peer.set('disconnected');
  state.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect([state.lost, state.asked.length]).toEqual([0, 0]);
});
