import { describe, expect, it } from 'vitest';
import * as format from './format';

describe('format', () => {
  it('writes seconds', () => {
    expect(format.seconds(0.844)).toBe('0.84 s');
    expect(format.seconds(9.99)).toBe('9.99 s');
    expect(format.seconds(9.996)).toBe('10.0 s');
    expect(format.seconds(-0.5)).toBe('-0.50 s');
    expect(format.seconds(null)).toBe('–');
    expect(format.seconds(Number.NaN)).toBe('–');
  });

  it('writes bitrates', () => {
    expect(format.bitrate(128_000)).toBe('128 kbit/s');
    expect(format.bitrate(999_499)).toBe('999 kbit/s');
    expect(format.bitrate(999_500)).toBe('1.0 Mbit/s');
    expect(format.bitrate(2_140_000)).toBe('2.1 Mbit/s');
    expect(format.bitrate(25_000_000)).toBe('25 Mbit/s');
    expect(format.bitrate(999_400_000)).toBe('999 Mbit/s');
    expect(format.bitrate(999_500_000)).toBe('1.0 Gbit/s');
    expect(format.bitrate(25_000_000_000)).toBe('25 Gbit/s');
    expect(format.bitrate(-1)).toBe('–');
  });

  it('writes shapes', () => {
    expect(format.resolution(1280, 720)).toBe('1280\u00a0×\u00a0720');
    expect(format.resolution(0, 0)).toBe('–');
    expect(format.frameRate(30)).toBe('30 fps');
    expect(format.frameRate(30_000 / 1001)).toBe('29.97 fps');
    expect(format.frameRate(0)).toBe('–');
    expect(format.sampleRate(44_100)).toBe('44.1 kHz');
    expect(format.channels(1)).toBe('mono');
    expect(format.channels(2)).toBe('stereo');
    expect(format.channels(6)).toBe('6 channels');
  });

  it('writes stalls and dropped frames', () => {
    expect(format.stalls(0, 0)).toBe('none');
    expect(format.stalls(2, 1.5)).toBe('2 (1.50 s)');
    expect(format.dropped(0, 500)).toBe('0');
    expect(format.dropped(3, 1_200)).toBe('3 (0.3 %)');
    expect(format.dropped(3, 0)).toBe('3');
    expect(format.dropped(undefined, 1)).toBe('–');
  });

  it('writes durations and counts', () => {
    expect(format.duration(7.9)).toBe('0:07');
    expect(format.duration(754)).toBe('12:34');
    expect(format.duration(3_723)).toBe('1:02:03');
    expect(format.duration(3 * 86_400 + 14_706)).toBe('3 d 04:05:06');
    expect(format.duration(-3)).toBe('0:00');
    expect(format.isoDuration(61.5)).toBe('PT61S');
    expect(format.whole(1_234_567)).toBe('1,234,567');
    expect(format.counted(1, 'viewer')).toBe('1 viewer');
    expect(format.counted(0, 'viewer')).toBe('0 viewers');
    expect(format.delivery('llhls')).toBe('LL-HLS');
    expect(format.delivery('something')).toBe('something');
  });
});

it('calls a track by its name, its language or its number', () => {
  expect(format.trackLabel('Commentary', 'en', 0)).toBe('Commentary');
  expect(format.trackLabel('', 'deu', 0)).toBe('German');
  expect(format.trackLabel('en', 'en', 0)).toBe('English');
  expect(format.trackLabel('', 'und', 1)).toBe('Track 2');
  expect(format.trackLabel('', 'not a language', 1)).toBe('not a language');
});
