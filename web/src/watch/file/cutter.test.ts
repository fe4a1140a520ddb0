import { describe, expect, it } from 'vitest';
import { type Cut, Cutter } from './cutter';
import type { Track, TrackPart } from './movie';
import { fromTables } from './samples';

/** A track of equal samples in one chunk, with a sync sample every `every` samples. */
function part(kind: 'video' | 'audio', count: number, delta: number, every: number, size = 100): TrackPart {
  const track: Track = {
    id: kind === 'video' ? 1 : 2,
    kind,
    codec: '',
    timescale: 1000,
    language: '',
    name: '',
    edit: 0,
    samples: null,
  };
  const sync = Array.from({ length: Math.ceil(count / every) }, (_, i) => 1 + i * every);
  const samples = fromTables({
    stsz: { sample_sizes: Array.from({ length: count }, () => size) },
    stco: { chunk_offsets: [0] },
    stsc: { first_chunk: [1], samples_per_chunk: [count] },
    stts: { sample_counts: [count], sample_deltas: [delta] },
    stss: { sample_numbers: sync },
  });
  return { track, samples };
}

const shape = (cuts: Cut[] | null) => cuts?.map(({ part, from, to }) => [part.track.kind, from, to]);

describe('Cutter', () => {
  it('cuts seconds, all tracks together, and loses nothing', () => {
    const cutter = new Cutter([part('video', 60, 40, 25), part('audio', 120, 21, 1)]);
    expect(shape(cutter.next())).toEqual([
      ['video', 0, 25],
      ['audio', 0, 48],
    ]);
    expect(shape(cutter.next())).toEqual([
      ['video', 25, 50],
      ['audio', 48, 96],
    ]);
    expect(shape(cutter.next())).toEqual([
      ['video', 50, 60],
      ['audio', 96, 120],
    ]);
    expect(cutter.next()).toBeNull();
  });

  it('begins where decoding can, and audio with it', () => {
    const cutter = new Cutter([part('video', 60, 40, 25), part('audio', 120, 21, 1)]);
    cutter.seek(1.5);
    expect(shape(cutter.next())).toEqual([
      ['video', 25, 50],
      ['audio', 47, 95],
    ]);
  });

  it('goes over pauses, one sample at least at a time', () => {
    const slides = new Cutter([part('video', 3, 30_000, 1)]);
    expect(shape(slides.next())).toEqual([['video', 0, 1]]);
    expect(shape(slides.next())).toEqual([['video', 1, 2]]);
    expect(shape(slides.next())).toEqual([['video', 2, 3]]);
    expect(slides.next()).toBeNull();
  });

  it('cuts shorter where a second is large', () => {
    const cutter = new Cutter([part('video', 32, 31.25, 1, 1_000_000)]);
    let at = 0;
    for (let cuts = cutter.next(); cuts; cuts = cutter.next()) {
      const [cut] = cuts;
      expect(cut?.from).toBe(at);
      expect((cut?.to ?? 0) - at).toBeLessThanOrEqual(4);
      at = cut?.to ?? Number.NaN;
    }
    expect(at).toBe(32);
  });

  it('has nothing to cut of nothing', () => {
    expect(new Cutter([]).next()).toBeNull();
  });
});
