import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Publication } from './publication';

/** A source of a device, or of a screen that its viewer may stop. */
class Track extends EventTarget {
  constructor(readonly kind: string) {
    super();
  }
  stop() {}
  end() {
    this.dispatchEvent(new Event('ended'));
  }
}

class Media {
  private tracks = new Set<Track>();
  addTrack(track: Track) {
    this.tracks.add(track);
  }
  removeTrack(track: Track) {
    this.tracks.delete(track);
  }
  getTracks() {
    return [...this.tracks];
  }
  getVideoTracks() {
    return this.getTracks().filter(({ kind }) => kind === 'video');
  }
}

function media(...kinds: string[]): Media {
  const all = new Media();
  for (const kind of kinds) all.addTrack(new Track(kind));
  return all;
}

/** What the page asked the browser for. */
let asked: string[];
/** The screens that were shared. */
let screens: Media[];

beforeEach(() => {
  [asked, screens] = [[], []];
  const mediaDevices = Object.assign(new EventTarget(), {
    enumerateDevices: async () => [],
    getDisplayMedia: async () => {
      asked.push('screen');
      screens.push(media('video'));
      return screens.at(-1);
    },
    getUserMedia: async ({ video, audio }: MediaStreamConstraints) => {
      const kinds = [...(video ? ['video'] : []), ...(audio ? ['audio'] : [])];
      asked.push(kinds.join());
      return media(...kinds);
    },
  });
  vi.stubGlobal('navigator', { mediaDevices });
  vi.stubGlobal('MediaStream', Media);
  vi.stubGlobal('addEventListener', () => {});
});

afterEach(() => vi.unstubAllGlobals());

it('shares a screen again that its viewer stopped, and only when that is chosen', async () => {
  const publication = new Publication('/live/a/whip');
  const choose = (change: object) => publication.choose({ ...publication.settings, ...change });
  const screen = { video: { kind: 'screen' } };
  await choose(screen);
  expect(asked).toEqual(['screen', 'audio']);
  screens[0]?.getTracks()[0]?.end();
  expect(publication.settings).toMatchObject({ video: { kind: 'none' }, audio: { kind: 'microphone' } });
  expect(publication.trouble).toBe('The video source has ended.');
  await choose({ bitrate: 1_000_000 });
  expect(asked).toEqual(['screen', 'audio']);
  await choose({ height: 1080 });
  expect(asked).toEqual(['screen', 'audio', 'audio']);
  await choose(screen);
  expect(asked).toEqual(['screen', 'audio', 'audio', 'screen', 'audio']);
  expect(publication.settings.video).toEqual({ kind: 'screen' });
});

it('keeps what was chosen where a source of the same kind ends meanwhile', async () => {
  const publication = new Publication('/live/a/whip');
  const screen = { kind: 'screen' } as const;
  await publication.choose({ ...publication.settings, video: screen });
  const chosen = publication.choose({ ...publication.settings, height: 1080 });
  screens[0]?.getTracks()[0]?.end();
  await chosen;
  expect(publication.settings).toMatchObject({ video: screen, height: 1080 });
  await publication.choose({ ...publication.settings, bitrate: 1_000_000 });
  expect(asked.filter((it) => it === 'screen')).toHaveLength(2);
});

it('opens what is chosen where the source before ends meanwhile', async () => {
  const publication = new Publication('/live/a/whip');
  await publication.choose({ ...publication.settings, video: { kind: 'screen' } });
  const camera = { kind: 'camera', id: null } as const;
  const chosen = publication.choose({ ...publication.settings, video: camera });
  screens[0]?.getTracks()[0]?.end();
  await chosen;
  expect(publication.settings.video).toEqual(camera);
  expect(publication.media.getVideoTracks()).toHaveLength(1);
});

/** A connection whose state the test sets. */
class Peer extends EventTarget {
  static all: Peer[] = [];
  connectionState = 'new';
  localDescription = { sdp: '' };
  constructor() {
    super();
    Peer.all.push(this);
  }
  addTransceiver = () => ({ setCodecPreferences: () => {} });
  getTransceivers = () => [];
  getStats = async () => new Map();
  setLocalDescription = async () => {};
  setRemoteDescription = async () => {};
  close = () => {};
  connect(state = 'connected') {
    this.connectionState = state;
    this.dispatchEvent(new Event('connectionstatechange'));
  }
}

describe('a first attempt', () => {
  /** Starts to publish to a server that answers like this. */
  const start = async (answer: () => Promise<unknown>, time = 10_000) => {
    vi.useFakeTimers();
    Peer.all = [];
    vi.stubGlobal('RTCPeerConnection', Peer);
    const codecs = [{ mimeType: 'video/H264', clockRate: 90_000, sdpFmtpLine: 'packetization-mode=1' }];
    vi.stubGlobal('RTCRtpSender', { getCapabilities: () => ({ codecs }) });
    vi.stubGlobal('fetch', (_: string, { method }: RequestInit) =>
      method === 'DELETE' ? Promise.resolve() : answer(),
    );
    const publication = new Publication('/live/a/whip');
    publication.start();
    await vi.advanceTimersByTimeAsync(time);
    return publication;
  };
  const created = async () => ({
    status: 201,
    headers: new Headers({ location: '/session' }),
    text: async () => '',
  });

  afterEach(() => vi.useRealTimers());

  it('is made once more where no connection follows an answer', async () => {
    const publication = await start(created);
    expect([publication.state, publication.trouble]).toEqual(['again', 'No connection within 10 s.']);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(Peer.all).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(publication.state).toBe('preview');
    await vi.advanceTimersByTimeAsync(60_000);
    expect(Peer.all).toHaveLength(2);
  });

  it('may succeed so', async () => {
    const publication = await start(created);
    await vi.advanceTimersByTimeAsync(2_000);
    Peer.all[1]?.connect();
    expect([publication.state, publication.trouble]).toEqual(['live', null]);
    publication.stop();
  });

  it('is made once more where ICE fails', async () => {
    const publication = await start(created, 1_000);
    Peer.all[0]?.connect('failed');
    expect([publication.state, publication.trouble]).toEqual(['again', 'No connection came about.']);
    await vi.advanceTimersByTimeAsync(2_000);
    Peer.all[1]?.connect('failed');
    expect(publication.state).toBe('preview');
  });

  it('is told where the server does not answer, or refuses', async () => {
    const silent = await start(() => new Promise(() => {}));
    expect([silent.state, silent.trouble]).toEqual(['preview', 'No connection within 10 s.']);
    const refused = await start(async () => ({ status: 409, text: async () => 'taken' }));
    expect([refused.state, refused.trouble]).toEqual(['preview', 'The server says: taken.']);
    expect(Peer.all).toHaveLength(1);
  });
});
