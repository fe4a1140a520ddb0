import { describe, expect, it } from 'vitest';
import {
  bytesOf,
  endOf,
  firstFrom,
  fromFragment,
  fromTables,
  piecesOf,
  type SampleTables,
  startOf,
  syncBefore,
} from './samples';

/** Six frames of 40 units, shown in the order 0 2 1 3 5 4, in chunks of two, one and three. */
const tables: SampleTables = {
  stsz: { sample_sizes: [10, 20, 30, 40, 50, 60] },
  stco: { chunk_offsets: [1000, 2000, 3000] },
  stsc: { first_chunk: [1, 2, 3], samples_per_chunk: [2, 1, 3] },
  stts: { sample_counts: [6], sample_deltas: [40] },
  ctts: { sample_counts: [1, 1, 1, 1, 1, 1], sample_offsets: [40, 80, 0, 40, 80, 0] },
  stss: { sample_numbers: [1, 4] },
};

describe('the tables of a progressive file', () => {
  it('tell where each sample is and when', () => {
    const samples = fromTables(tables);
    expect([...samples.offset]).toEqual([1000, 1010, 2000, 3000, 3040, 3090]);
    expect([...samples.dts]).toEqual([0, 40, 80, 120, 160, 200]);
    expect([...samples.compositionOffset]).toEqual([40, 80, 0, 40, 80, 0]);
    expect([...samples.sync]).toEqual([1, 0, 0, 1, 0, 0]);
    expect(startOf(samples)).toBe(40);
    expect(endOf(samples)).toBe(280);
  });

  it('repeat the last run of chunks, and have only sync samples where none are named', () => {
    const samples = fromTables({
      ...tables,
      stco: { chunk_offsets: [0, 100, 200] },
      stsc: { first_chunk: [1], samples_per_chunk: [2] },
      stss: undefined,
      ctts: undefined,
    });
    expect([...samples.offset]).toEqual([0, 10, 100, 130, 200, 250]);
    expect([...samples.sync]).toEqual([1, 1, 1, 1, 1, 1]);
  });

  it('are refused when they contradict each other', () => {
    expect(() => fromTables({ ...tables, stco: { chunk_offsets: [1000] } })).toThrow('contradicts');
    const short = { sample_counts: [5], sample_deltas: [40] };
    expect(() => fromTables({ ...tables, stts: short })).toThrow('contradicts');
    const many = { sample_counts: [4_000_000_000], sample_deltas: [40] };
    expect(fromTables({ ...tables, stts: many }).count).toBe(6);
    const none = { first_chunk: [], samples_per_chunk: [] };
    expect(() => fromTables({ ...tables, stsc: none })).toThrow('contradicts');
  });
});

describe('a track fragment', () => {
  const run = {
    sample_count: 2,
    data_offset: 100 as number | undefined,
    first_sample_flags: undefined as number | undefined,
    sample_duration: [],
    sample_size: [5, 6],
    sample_flags: [],
    sample_composition_time_offset: [],
  };
  const defaults = { duration: 10, size: 1, flags: 0x1_0000 };

  it('takes from the defaults what its runs do not say, and runs follow each other', () => {
    const first = { ...run, first_sample_flags: 0 };
    const second = { ...run, data_offset: undefined, sample_size: [], sample_duration: [3, 4] };
    const { samples, end } = fromFragment({
      baseOffset: 1000,
      decodeTime: 70,
      defaults,
      runs: [first, second],
    });
    expect([...samples.offset]).toEqual([1100, 1105, 1111, 1112]);
    expect([...samples.dts]).toEqual([70, 80, 90, 93]);
    expect([...samples.sync]).toEqual([1, 0, 0, 0]);
    expect(end).toBe(1113);
  });

  it('does not have milliards of samples', () => {
    const runs = [{ ...run, sample_count: 4_000_000_000 }];
    expect(() => fromFragment({ baseOffset: 0, decodeTime: 0, defaults, runs })).toThrow('more samples');
  });
});

describe('looking for samples', () => {
  const samples = fromTables(tables);

  it('by decode time', () => {
    expect(firstFrom(samples, -1)).toBe(0);
    expect(firstFrom(samples, 40)).toBe(1);
    expect(firstFrom(samples, 41)).toBe(2);
    expect(firstFrom(samples, 999)).toBe(6);
  });

  it('by where decoding begins', () => {
    expect(syncBefore(samples, 0)).toBe(0);
    expect(syncBefore(samples, 159)).toBe(0);
    expect(syncBefore(samples, 160)).toBe(3);
    expect(syncBefore(samples, 9_999)).toBe(3);
  });

  it('joins neighbours', () => {
    expect(piecesOf(samples, 0, 5)).toEqual([
      { offset: 1000, size: 30 },
      { offset: 2000, size: 30 },
      { offset: 3000, size: 90 },
    ]);
    expect(bytesOf(samples, 0, 5)).toBe(150);
  });
});
