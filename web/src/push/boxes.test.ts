import { describe, expect, it } from 'vitest';
import { readChunk, readHeader } from './boxes';

type Part = number[] | string | Uint8Array;

function bytes(...parts: Part[]): Uint8Array {
  return Uint8Array.from(
    parts.flatMap((part) => (typeof part === 'string' ? [...part].map((c) => c.charCodeAt(0)) : [...part])),
  );
}

const u32 = (value: number) => [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) & 255);
const u64 = (value: number) => [...u32(Math.floor(value / 2 ** 32)), ...u32(value % 2 ** 32)];
const zeros = (count: number) => new Array<number>(count).fill(0);

function box(type: string, ...content: Part[]): Uint8Array {
  const inside = bytes(...content);
  return bytes(u32(inside.length + 8), type, inside);
}

function trak(id: number, handler: string, timescale: number, entry: Uint8Array, version = 0): Uint8Array {
  const times = version === 1 ? zeros(16) : zeros(8);
  return box(
    'trak',
    box('tkhd', [version, 0, 0, 0], times, u32(id), zeros(60)),
    box(
      'mdia',
      box('mdhd', [version, 0, 0, 0], times, u32(timescale), zeros(8)),
      box('hdlr', zeros(8), handler, zeros(13)),
      box('minf', box('stbl', box('stsd', zeros(4), u32(1), entry))),
    ),
  );
}

const video = (type: string, ...boxes: Uint8Array[]) => box(type, zeros(78), ...boxes);
const audio = (type: string, ...boxes: Uint8Array[]) => box(type, zeros(28), ...boxes);

const AVC = video('avc1', box('avcC', [1, 0x64, 0, 0x1f, 0xff]));
const HEVC = video('hvc1', box('hvcC', [1, 1, 0x60, 0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 93]));
const AV1 = video('av01', box('av1C', [0x81, 0x04, 0x0c, 0]));
const AV1_10 = video('av01', box('av1C', [0x81, 0x2d, 0xcc, 0]));
const AAC = audio(
  'mp4a',
  box('esds', zeros(4), [3, 25, 0, 1, 0, 4, 17, 0x40], zeros(12), [5, 2, 0x12, 0x10]),
);
const LONG_AAC = audio(
  'mp4a',
  box('esds', zeros(4), [3, 0x80, 0x80, 25, 0, 1, 0, 4, 0x80, 17, 0x40], zeros(12), [5, 2, 0x12, 0x10]),
);
const MP3 = audio('mp4a', box('esds', zeros(4), [3, 18, 0, 1, 0, 4, 13, 0x6b], zeros(12)));
const OPUS = audio('Opus', box('dOps', zeros(11)));

const header = (...traks: Uint8Array[]) =>
  bytes(box('ftyp', 'iso6', zeros(4)), box('moov', box('mvhd', zeros(100)), ...traks));

describe('readHeader', () => {
  it('reads tracks, of either version of the boxes', () => {
    expect(readHeader(header(trak(1, 'vide', 90_000, AVC), trak(2, 'soun', 48_000, AAC, 1)))).toEqual([
      { id: 1, video: true, timescale: 90_000, codec: 'avc1.64001f' },
      { id: 2, video: false, timescale: 48_000, codec: 'mp4a.40.2' },
    ]);
  });

  it.each([
    ['hvc1.1.6.L93.B0', 'vide', HEVC],
    ['av01.0.04M.08', 'vide', AV1],
    ['av01.1.13H.10', 'vide', AV1_10],
    ['mp4a.40.2', 'soun', LONG_AAC],
    ['mp4a.6B', 'soun', MP3],
    ['Opus', 'soun', OPUS],
  ])('%s', (codec, handler, entry) => {
    expect(readHeader(header(trak(1, handler, 1000, entry)))?.[0]?.codec).toBe(codec);
  });

  it('knows what is none', () => {
    expect(readHeader(bytes(box('moof', zeros(4)), box('mdat')))).toBeNull();
    expect(readHeader(new Uint8Array())).toBeNull();
  });

  it('throws nothing but RangeErrors at what is cut off or changed', () => {
    const whole = header(trak(1, 'vide', 90_000, HEVC), trak(2, 'soun', 48_000, AAC));
    for (let at = 0; at < whole.length; at++) {
      const changed = whole.slice();
      changed[at] = 0xff - (changed[at] ?? 0);
      for (const input of [whole.slice(0, at), changed]) {
        try {
          readHeader(input);
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
        }
      }
    }
  });
});

interface Moof {
  track?: number;
  time?: number;
  tfhd?: [flags: number, ...fields: number[]];
  trun?: [flags: number, ...fields: number[]];
}

function chunk({ track = 7, time = 90_000, tfhd = [0x2_0020, 0], trun = [0x1, 100] }: Moof): Uint8Array {
  const [flags, ...fields] = tfhd;
  const [has, ...entries] = trun;
  const traf = box(
    'traf',
    box('tfhd', u32(flags), u32(track), ...fields.map(u32)),
    box('tfdt', [1, 0, 0, 0], u64(time)),
    box('trun', u32(has), u32(1), ...entries.map(u32)),
  );
  return bytes(box('moof', box('mfhd', zeros(8)), traf), box('mdat', zeros(9)));
}

const NON_SYNC = 0x1_0000;

describe('readChunk', () => {
  it('reads track, time and capture', () => {
    expect(readChunk(chunk({ track: 3, time: 2 ** 40 }))).toEqual({
      track: 3,
      time: 2 ** 40,
      independent: true,
      captured: null,
    });
    // Half a second after the start of 1970.
    const prft = box('prft', [1, 0, 0, 24], u32(3), u32(2_208_988_800), u32(2 ** 31), u64(45_000));
    expect(readChunk(bytes(box('styp', zeros(8)), prft, chunk({}))).captured).toEqual({
      time: 45_000,
      at: 500,
    });
  });

  it.each<[string, Moof, boolean]>([
    ['by default a keyframe', { tfhd: [0x2_0020, 0] }, true],
    ['by default none', { tfhd: [0x2_0020, NON_SYNC] }, false],
    ['default behind duration and size', { tfhd: [0x2_0038, 3000, 100, NON_SYNC] }, false],
    ['default behind all fields', { tfhd: [0x3b, 0, 0, 1, 3000, 100, NON_SYNC] }, false],
    ['the first alone', { tfhd: [0x2_0020, NON_SYNC], trun: [0x5, 100, 0] }, true],
    ['each, the first one', { trun: [0x701, 100, 3000, 50, 0] }, true],
    ['each, not the first one', { trun: [0x701, 100, 3000, 50, NON_SYNC] }, false],
  ])('%s', (_what, moof, independent) => {
    expect(readChunk(chunk(moof)).independent).toBe(independent);
  });

  it('throws nothing but RangeErrors at what is cut off or changed', () => {
    const whole = chunk({ trun: [0x701, 100, 3000, 50, 0] });
    for (let at = 0; at < whole.length; at++) {
      const changed = whole.slice();
      changed[at] = 0xff - (changed[at] ?? 0);
      for (const input of [whole.slice(0, at), changed]) {
        try {
          readChunk(input);
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
        }
      }
    }
  });
});
