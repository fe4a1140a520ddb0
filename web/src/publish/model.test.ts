import { describe, expect, test } from 'vitest';
import {
  constraints,
  deviceTrouble,
  encodings,
  figures,
  mostBitrate,
  NOTHING_SENT,
  preferred,
  streamOf,
  USUAL,
} from './model';

describe('what is sent', () => {
  const reports = (bytes: number) => [
    {
      type: 'outbound-rtp',
      kind: 'video',
      bytesSent: bytes,
      framesPerSecond: 30,
      frameWidth: 1280,
      frameHeight: 720,
      qualityLimitationReason: 'cpu',
    },
    { type: 'outbound-rtp', kind: 'audio', bytesSent: 1_000 },
    { type: 'remote-inbound-rtp', kind: 'video', fractionLost: 0.02 },
    { type: 'candidate-pair', nominated: false, currentRoundTripTime: 9 },
    { type: 'candidate-pair', nominated: true, currentRoundTripTime: 0.05 },
    { type: 'codec', mimeType: 'video/H264' },
  ];

  test('is what came between two moments', () => {
    const [first, counted] = figures(reports(10_000), 1_000, null);
    expect(first.bitrate).toBe(null);
    const [second] = figures(reports(60_000), 3_000, counted);
    expect(second).toEqual({
      bitrate: 200_000,
      frameRate: 30,
      width: 1280,
      height: 720,
      layers: [],
      loss: 0.02,
      roundTrip: 0.05,
      limitedBy: 'processor',
    });
  });

  test('is unknown where nothing is reported, and where a new connection counts anew', () => {
    expect(figures([], 5, null)[0]).toEqual(NOTHING_SENT);
    const counted = { at: 1_000, bytes: 50_000, layers: new Map() };
    const [after] = figures(reports(1_000), 2_000, counted);
    expect(after.bitrate).toBe(null);
  });
});

describe('simulcast', () => {
  const layer = (rid: string, height: number, bytes: number, framesPerSecond: number) => ({
    type: 'outbound-rtp',
    kind: 'video',
    rid,
    bytesSent: bytes,
    framesPerSecond,
    frameWidth: (height * 16) / 9,
    frameHeight: height,
  });

  test('is told layer by layer, from the largest that is sent', () => {
    const [, counted] = figures([layer('l', 180, 1_000, 30), layer('h', 720, 9_000, 30)], 0, null);
    const [sent] = figures([layer('l', 180, 2_000, 30), layer('h', 720, 9_000, 0)], 1_000, counted);
    expect(sent.layers).toEqual([
      { rid: 'h', bitrate: 0, frameRate: 0, width: 1280, height: 720 },
      { rid: 'l', bitrate: 8_000, frameRate: 30, width: 320, height: 180 },
    ]);
    expect([sent.bitrate, sent.height]).toEqual([8_000, 180]);
  });

  test('is off by default, and sends no tiny pictures', () => {
    expect(encodings(USUAL)).toEqual([]);
    const of = (height: number) =>
      encodings({ ...USUAL, simulcast: true, height, bitrate: 3_000_000 }).map(
        ({ rid, scaleResolutionDownBy, maxBitrate }) => [rid, scaleResolutionDownBy, maxBitrate],
      );
    const [l, m, h] = [
      ['l', 4, 375_000],
      ['m', 2, 1_000_000],
      ['h', 1, 3_000_000],
    ];
    expect(of(720)).toEqual([l, m, h]);
    expect(of(480)).toEqual([m, h]);
    expect(mostBitrate(3_000_000, undefined)).toBe(3_000_000);
  });
});

test('a device is asked for by its id, and any device without one', () => {
  expect(constraints(USUAL)).toEqual({
    video: { height: { ideal: 720 }, frameRate: { ideal: 30 } },
    audio: {},
  });
  expect(
    constraints({ ...USUAL, video: { kind: 'screen' }, audio: { kind: 'microphone', id: 'm' } }),
  ).toEqual({
    video: false,
    audio: { deviceId: { exact: 'm' } },
  });
  expect(constraints({ ...USUAL, video: { kind: 'screen' }, audio: { kind: 'none' } })).toBe(null);
});

test('H.264 alone is offered, with its retransmissions', () => {
  const codecs = ['video/VP8', 'video/rtx', 'video/H264', 'video/ulpfec'].map((mimeType) => ({ mimeType }));
  expect(preferred(codecs).map(({ mimeType }) => mimeType)).toEqual(['video/H264', 'video/rtx']);
  expect(preferred(codecs.slice(0, 2))).toEqual([]);
});

test('the address names a live stream', () => {
  expect(streamOf('/publish/live/cam')).toBe('live/cam');
  expect(streamOf('/publish/live/a/b/')).toBe('live/a/b');
  for (const path of [
    '/publish/',
    '/publish/live/',
    '/publish/live/.cam',
    '/publish/vod/a',
    '/publish/live/a%2Fb',
  ])
    expect(streamOf(path)).toBe(null);
});

test('each trouble with a device is told in words', () => {
  expect(deviceTrouble(new DOMException('', 'NotAllowedError'))).toMatch('did not let');
  expect(deviceTrouble(new DOMException('', 'NotFoundError'))).toMatch('no such');
  expect(deviceTrouble(new DOMException('', 'NotReadableError'))).toMatch('Another program');
  expect(deviceTrouble(new TypeError('odd'))).toMatch('odd');
});
