import { describe, expect, it, vi } from 'vitest';
import { BadAnswer, parseStreams, readStream } from './api';
import { NO_CREDENTIALS } from './credentials';

const stream = {
  name: 'live/demo',
  state: 'live',
  since: '2026-01-02T03:04:05Z',
  publishers: [{ peer: '127.0.0.1:5000', protocol: 'rtmp', rendition: null }],
  waiting: [{ peer: null, protocol: 'whip', rendition: null, backup: true }],
  tracks: [
    {
      name: 'v0',
      kind: 'video',
      codec: 'avc1.64001f',
      bitrate: 2_000_000,
      width: 1280,
      height: 720,
      frame_rate: 30.0,
    },
    { name: 'a0', kind: 'audio', codec: 'mp4a.40.2', bitrate: 128_000, sample_rate: 48_000, channels: 2 },
  ],
  viewers: { llhls: 1, hls: 0, dash: 2 },
};

describe('parseStreams', () => {
  it('reads what the API promises', () => {
    const [parsed] = parseStreams({ streams: [stream] });
    expect(parsed).toMatchObject({
      name: 'live/demo',
      state: 'live',
      since: new Date('2026-01-02T03:04:05Z'),
    });
    expect(parsed?.publishers).toEqual([
      { peer: '127.0.0.1:5000', protocol: 'rtmp', rendition: null, backup: false },
    ]);
    expect(parsed?.waiting).toEqual([{ peer: null, protocol: 'whip', rendition: null, backup: true }]);
    expect(parsed?.tracks[0]).toMatchObject({ kind: 'video', frameRate: 30, sampleRate: null });
    expect(parsed?.tracks[1]).toMatchObject({ kind: 'audio', sampleRate: 48_000, channels: 2, width: null });
    expect(parsed?.viewers).toEqual([
      { delivery: 'llhls', count: 1 },
      { delivery: 'hls', count: 0 },
      { delivery: 'dash', count: 2 },
    ]);
  });

  it('reads the advice', () => {
    const advice = [
      { level: 'warning', text: 'keyframes are 8.3 s apart' },
      { level: 'note', text: 'the timeline broke off once' },
    ];
    const [healthy, over, ill] = parseStreams({
      streams: [{}, { health: null }, { health: { advice } }].map((more) => ({ ...stream, ...more })),
    });
    expect([healthy?.advice, over?.advice, ill?.advice]).toEqual([[], [], advice]);
  });

  it('reads what players tell', () => {
    const quality = {
      viewers: 3,
      buffer_seconds: { median: 1.9, bad: 0.7 },
      startup_seconds: null,
      stalls: 2,
    };
    const [parsed] = parseStreams({ streams: [{ ...stream, quality }] });
    const unknown = { startup: null, throughput: null, bitrate: null, urgent: 0 };
    expect(parsed?.quality).toEqual({ viewers: 3, buffer: { median: 1.9, bad: 0.7 }, stalls: 2, ...unknown });
  });

  it('lives with what is missing', () => {
    const [parsed] = parseStreams({ streams: [{ name: 'live/x', state: 'offline' }] });
    expect(parsed).toEqual({
      advice: [],
      quality: null,
      name: 'live/x',
      state: 'offline',
      since: null,
      publishers: [],
      waiting: [],
      tracks: [],
      viewers: [],
    });
  });

  it.each([
    null,
    [],
    'x',
    {},
    { streams: {} },
    { streams: [1] },
    { streams: [{ state: 'live' }] },
    { streams: [{ ...stream, state: 'odd' }] },
  ])('refuses %j', (answer) => {
    expect(() => parseStreams(answer)).toThrow(BadAnswer);
  });
});

it('asks for titles with any name', async () => {
  const asked: string[] = [];
  vi.stubGlobal('fetch', async (url: string) => {
    asked.push(url);
    return new Response('null');
  });
  expect(await readStream('vod/films/100 % #1?.mp4', '/s/T', NO_CREDENTIALS)).toBeNull();
  expect(asked).toEqual(['/s/T/api/v1/streams/vod/films/100%20%25%20%231%3F.mp4?absent=null']);
  vi.unstubAllGlobals();
});
