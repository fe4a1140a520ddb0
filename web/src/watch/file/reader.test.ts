import { beforeAll, describe, expect, it } from 'vitest';
// The clip of `headwater serve --demo`: 16 s, 480 frames in groups of 30, 750 AAC frames, index in front.
import clipUrl from '../../../../crates/headwater/assets/demo.mp4?inline';
import { NO_CREDENTIALS } from '../../shared/credentials';
import type { FileFailure } from './failure';
import { Ranges } from './ranges';
import { Reader, type Segment } from './reader';

const signal = new AbortController().signal;
let clip: Uint8Array<ArrayBuffer>;

beforeAll(async () => {
  clip = new Uint8Array(await (await fetch(clipUrl)).arrayBuffer());
});

/** Answers range requests from memory, and counts the requested bytes. */
function served(file: Uint8Array<ArrayBuffer>) {
  const asked = { bytes: 0 };
  const ranges = new Ranges('/vod/x.mp4', NO_CREDENTIALS, async (_url, init) => {
    const [, from, to] =
      /^bytes=(\d+)-(\d+)$/.exec((init.headers as Record<string, string>).range ?? '') ?? [];
    const start = Number(from);
    const end = Math.min(Number(to) + 1, file.length);
    asked.bytes += end - start;
    const headers = { 'content-range': `bytes ${start}-${end - 1}/${file.length}` };
    return new Response(file.slice(start, end), { status: 206, headers });
  });
  return { ranges, asked };
}

function open(file: Uint8Array<ArrayBuffer>, decodes: (mime: string) => boolean = () => true) {
  return Reader.open(served(file).ranges, decodes, signal);
}

async function segmentsFrom(reader: Reader, time: number): Promise<Segment[]> {
  await reader.seek(time, signal);
  const segments: Segment[] = [];
  for (let segment = await reader.next(signal); segment; segment = await reader.next(signal)) {
    segments.push(segment);
  }
  return segments;
}

/** The same clip as a fragmented file. */
async function fragmented(): Promise<Uint8Array<ArrayBuffer>> {
  const reader = await open(clip);
  const parts = [reader.header(), ...(await segmentsFrom(reader, 0)).map(({ bytes }) => bytes)];
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Number of samples in a file's fragments by track, from the trun boxes. */
function samplesByTrack(bytes: Uint8Array): Record<number, number> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const counts: Record<number, number> = {};
  const walk = (start: number, end: number, track: { id: number }) => {
    for (let at = start; at < end; at += view.getUint32(at)) {
      const type = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
      if (type === 'moof' || type === 'traf') walk(at + 8, at + view.getUint32(at), { id: 0 });
      if (type === 'tfhd') track.id = view.getUint32(at + 12);
      if (type === 'trun') counts[track.id] = (counts[track.id] ?? 0) + view.getUint32(at + 12);
    }
  };
  const inTraf = (start: number, end: number) => walk(start, end, { id: 0 });
  inTraf(0, bytes.length);
  return counts;
}

describe('a progressive file', () => {
  it('is told of as it is', async () => {
    const reader = await open(clip);
    expect(reader.mime).toMatch(/^video\/mp4; codecs="avc1\.[0-9a-f]{6}, mp4a\.40\.2"$/);
    expect(reader.duration).toBeCloseTo(16, 1);
    expect(reader.timestampOffset).toBe(0);
  });

  it('becomes segments of a second that lose no sample', async () => {
    const whole = await fragmented();
    expect(Object.values(samplesByTrack(whole))).toEqual([480, 750]);
    const reader = await open(clip);
    const segments = await segmentsFrom(reader, 0);
    expect(segments.length).toBeGreaterThanOrEqual(16);
    expect(segments.flatMap(({ entrances }) => entrances)).toEqual(Array.from({ length: 16 }, (_, i) => i));
    expect(reader.frameRate).toBeCloseTo(30, 5);
  });

  it('is read from a jump on, and no other bytes', async () => {
    const { ranges, asked } = served(clip);
    const reader = await Reader.open(ranges, () => true, signal);
    const before = asked.bytes;
    await reader.seek(14.5, signal);
    const segment = await reader.next(signal);
    expect(segment?.entrances).toEqual([14]);
    expect(asked.bytes - before).toBeLessThanOrEqual(1_048_576);
  });
});

describe('a fragmented file', () => {
  it('gives the same samples as the one it was made of', async () => {
    const file = await fragmented();
    const reader = await open(file);
    const segments = await segmentsFrom(reader, 0);
    const again = new Uint8Array(await new Blob(segments.map(({ bytes }) => bytes)).arrayBuffer());
    expect(samplesByTrack(again)).toEqual(samplesByTrack(file));
  });

  it('is read from a jump on, found by walking where there is no index', async () => {
    const reader = await open(await fragmented());
    expect(reader.duration).toBeNull();
    const ahead = await segmentsFrom(reader, 7.5);
    expect(ahead.flatMap(({ entrances }) => entrances)).toEqual([7, 8, 9, 10, 11, 12, 13, 14, 15]);
    const back = await segmentsFrom(reader, 2);
    expect(back.flatMap(({ entrances }) => entrances)[0]).toBe(2);
  });
});

describe('what cannot be played', () => {
  const failing = async (file: Uint8Array<ArrayBuffer>, decodes?: (mime: string) => boolean) => {
    const error = await open(file, decodes).then(
      () => null,
      (reason: unknown) => reason as FileFailure,
    );
    return error && [error.kind, error.what];
  };

  it('is told in words', async () => {
    const text = new TextEncoder().encode('This is no film.\n'.repeat(9));
    expect(await failing(text)).toEqual(['media', 'This is not an MP4 file.']);
    expect((await failing(clip.slice(0, 40)))?.[1]).toMatch(/no index|cut off/);
    expect((await failing(clip.slice(0, 5_000)))?.[1]).toContain('its index does not lie within it');
    const blind = await failing(clip, (mime) => !mime.startsWith('video'));
    expect(blind?.[0]).toBe('codec');
    expect(blind?.[1]).toContain('H.264');
  });

  it('never breaks otherwise, wherever the index is damaged', async () => {
    const start = clip.slice(0, 150_000);
    const index = new DataView(start.buffer);
    const end = index.getUint32(0) + index.getUint32(index.getUint32(0));
    // Every 101st byte is inverted, one at a time.
    for (let at = 0; at < end; at += 101) {
      const file = start.slice();
      file[at] = ~(file[at] ?? 0) & 0xff;
      try {
        const reader = await open(file);
        reader.header();
        await reader.seek(1, signal);
        await reader.next(signal);
      } catch (error) {
        expect(error, `byte ${at}`).toHaveProperty('what');
      }
    }
  }, 30_000);
});
