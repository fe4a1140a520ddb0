import { describe, expect, it } from 'vitest';
import type { Track } from './api';
import { codecName, missingCodecs } from './codec';

function track(kind: Track['kind'], codec: string): Track {
  return {
    name: '',
    kind,
    codec,
    bitrate: null,
    width: null,
    height: null,
    frameRate: null,
    sampleRate: null,
    channels: null,
  };
}

const h264 = track('video', 'avc1.64001f');
const hevc = track('video', 'hvc1.1.6.L120.90');
const aac = track('audio', 'mp4a.40.2');
const withoutHevc = (mime: string) => !mime.includes('hvc1');

describe('codecs', () => {
  it('have names', () => {
    expect(codecName('hev1.1.6.L93.B0')).toBe('HEVC');
    expect(codecName('av01.0.04M.08')).toBe('AV1');
    expect(codecName('mp4a.6B')).toBe('MP3');
    expect(codecName('Opus')).toBe('Opus');
    expect(codecName('xyz1')).toBe('xyz1');
  });

  it('are missing only where no rendition of a kind plays', () => {
    expect(missingCodecs([h264, aac], withoutHevc)).toEqual([]);
    expect(missingCodecs([hevc, h264, aac], withoutHevc)).toEqual([]);
    expect(missingCodecs([hevc, hevc, aac], withoutHevc)).toEqual(['HEVC']);
    expect(missingCodecs([hevc, aac], () => false)).toEqual(['HEVC', 'AAC']);
    expect(missingCodecs([], () => false)).toEqual([]);
    expect(missingCodecs([track('video', '')], () => false)).toEqual([]);
  });

  it('are asked for as the browser wants them', () => {
    const asked: string[] = [];
    missingCodecs([h264, aac], (mime) => {
      asked.push(mime);
      return true;
    });
    expect(asked).toEqual(['video/mp4; codecs="avc1.64001f"', 'audio/mp4; codecs="mp4a.40.2"']);
  });
});
