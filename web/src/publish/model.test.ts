import { describe, expect, test } from 'vitest';
import { constraints, deviceTrouble, figures, NOTHING_SENT, preferred, streamOf, USUAL } from './model';

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
      loss: 0.02,
      roundTrip: 0.05,
      limitedBy: 'processor',
    });
  });

  test('is unknown where nothing is reported, and where a new connection counts anew', () => {
    expect(figures([], 5, null)[0]).toEqual(NOTHING_SENT);
    const [after] = figures(reports(1_000), 2_000, { at: 1_000, bytes: 50_000 });
    expect(after.bitrate).toBe(null);
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
