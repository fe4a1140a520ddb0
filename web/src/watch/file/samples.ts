import { FileFailure } from './failure';
import type { Piece } from './ranges';

/**
 * Most samples of a track: 24 hours at 120 per second. Tables of a file that claims more could fill
 * the memory.
 */
const MOST_SAMPLES = 120 * 86_400;

/** Places and times of a track's samples, in decode order. */
export interface Samples {
  readonly count: number;
  /** Position in the file, in bytes. */
  readonly offset: Float64Array;
  /** In bytes. */
  readonly size: Uint32Array;
  /** Decode time, in units of the track's timescale. */
  readonly dts: Float64Array;
  readonly duration: Uint32Array;
  /** Presentation time minus decode time. */
  readonly compositionOffset: Int32Array;
  /** 1 if decoding may begin here. */
  readonly sync: Uint8Array;
}

/** The tables of a `stbl` box (ISO/IEC 14496-12, 8.6 and 8.7), run-length coded as in the file. */
export interface SampleTables {
  stsz: { sample_sizes: readonly number[] };
  stco: { chunk_offsets: readonly number[] };
  stsc: { first_chunk: readonly number[]; samples_per_chunk: readonly number[] };
  stts: { sample_counts: readonly number[]; sample_deltas: readonly number[] };
  ctts?: { sample_counts: readonly number[]; sample_offsets: readonly number[] } | undefined;
  stss?: { sample_numbers: readonly number[] } | undefined;
}

export function allocate(count: number): Samples {
  if (count > MOST_SAMPLES) {
    throw new FileFailure('media', 'The index of the file claims more samples than a title has.', `${count}`);
  }
  return {
    count,
    offset: new Float64Array(count),
    size: new Uint32Array(count),
    dts: new Float64Array(count),
    duration: new Uint32Array(count),
    compositionOffset: new Int32Array(count),
    sync: new Uint8Array(count),
  };
}

/** Expands the tables of a progressive file. Tables that contradict each other are refused. */
export function fromTables(tables: SampleTables): Samples {
  const { sample_sizes } = tables.stsz;
  const samples = allocate(sample_sizes.length);
  samples.size.set(sample_sizes);
  placeInChunks(samples, tables);
  let at = 0;
  let dts = 0;
  eachRun(tables.stts.sample_counts, tables.stts.sample_deltas, samples.count, (delta) => {
    samples.dts[at] = dts;
    samples.duration[at] = delta;
    dts += delta;
    at += 1;
  });
  if (at < samples.count) throw contradiction('stts');
  if (tables.ctts) {
    at = 0;
    eachRun(tables.ctts.sample_counts, tables.ctts.sample_offsets, samples.count, (offset) => {
      samples.compositionOffset[at] = offset;
      at += 1;
    });
  }
  if (tables.stss) {
    for (const number of tables.stss.sample_numbers) samples.sync[number - 1] = 1;
  } else {
    samples.sync.fill(1);
  }
  return samples;
}

function placeInChunks(samples: Samples, { stsc, stco }: SampleTables): void {
  let at = 0;
  let run = -1;
  for (const [chunk, start] of stco.chunk_offsets.entries()) {
    if (stsc.first_chunk[run + 1] === chunk + 1) run += 1;
    let offset = start;
    const end = Math.min(samples.count, at + (stsc.samples_per_chunk[run] ?? 0));
    for (; at < end; at++) {
      samples.offset[at] = offset;
      offset += samples.size[at] ?? 0;
    }
  }
  if (at < samples.count) throw contradiction('stsc');
}

function eachRun(
  counts: readonly number[],
  values: readonly number[],
  most: number,
  body: (value: number) => void,
): void {
  let left = most;
  for (const [i, count] of counts.entries()) {
    for (let n = Math.min(count, left); n > 0; n--) body(values[i] ?? 0);
    left -= Math.min(count, left);
  }
}

function contradiction(table: string): FileFailure {
  return new FileFailure(
    'media',
    'The index of the file contradicts itself.',
    `${table} describes too few samples`,
  );
}

/** A track fragment (ISO/IEC 14496-12, 8.8.7 and 8.8.8), with the defaults of its track. */
export interface TrackFragment {
  baseOffset: number;
  /** Decode time of the first sample. */
  decodeTime: number;
  defaults: { duration: number; size: number; flags: number };
  runs: readonly {
    sample_count: number;
    /** From `baseOffset`. If undefined, the run begins where the one before ends. */
    data_offset: number | undefined;
    first_sample_flags: number | undefined;
    sample_duration: readonly number[];
    sample_size: readonly number[];
    sample_flags: readonly number[];
    sample_composition_time_offset: readonly number[];
  }[];
}

/** The flag `sample_is_non_sync_sample`. */
const NON_SYNC = 1 << 16;

/** The samples of a track fragment, and the end of their bytes. */
export function fromFragment(fragment: TrackFragment): { samples: Samples; end: number } {
  const { defaults, runs } = fragment;
  const samples = allocate(runs.reduce((count, run) => count + run.sample_count, 0));
  let at = 0;
  let dts = fragment.decodeTime;
  let offset = fragment.baseOffset;
  for (const run of runs) {
    if (run.data_offset !== undefined) offset = fragment.baseOffset + run.data_offset;
    for (let i = 0; i < run.sample_count; i++, at++) {
      const size = run.sample_size[i] ?? defaults.size;
      const duration = run.sample_duration[i] ?? defaults.duration;
      const first = i === 0 ? run.first_sample_flags : undefined;
      const flags = first ?? run.sample_flags[i] ?? defaults.flags;
      samples.offset[at] = offset;
      samples.size[at] = size;
      samples.dts[at] = dts;
      samples.duration[at] = duration;
      samples.compositionOffset[at] = run.sample_composition_time_offset[i] ?? 0;
      samples.sync[at] = flags & NON_SYNC ? 0 : 1;
      offset += size;
      dts += duration;
    }
  }
  return { samples, end: offset };
}

/** Index of the first sample with a decode time of `time` or later; `count` if there is none. */
export function firstFrom(samples: Samples, time: number): number {
  let low = 0;
  let high = samples.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((samples.dts[middle] ?? 0) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Index of the last sync sample presented at `time` or before; the first sync sample if all are
 * later.
 */
export function syncBefore(samples: Samples, time: number): number {
  let at = samples.count - 1;
  while (at > 0 && !(samples.sync[at] && presentation(samples, at) <= time)) at -= 1;
  if (samples.sync[at]) return at;
  const first = samples.sync.indexOf(1);
  return first < 0 ? 0 : first;
}

export function presentation(samples: Samples, at: number): number {
  return (samples.dts[at] ?? 0) + (samples.compositionOffset[at] ?? 0);
}

/** When the last sample ends, in presentation time; -Infinity if there is none. */
export function endOf(samples: Samples): number {
  let end = Number.NEGATIVE_INFINITY;
  // Only one of the last frames can be presented last: reordering spans at most 16 frames (H.264,
  // A.3.1).
  for (let at = Math.max(0, samples.count - 17); at < samples.count; at++) {
    end = Math.max(end, presentation(samples, at) + (samples.duration[at] ?? 0));
  }
  return end;
}

/** When the first sample is presented; Infinity if there is none. */
export function startOf(samples: Samples): number {
  let start = Number.POSITIVE_INFINITY;
  for (let at = 0; at < Math.min(17, samples.count); at++) {
    start = Math.min(start, presentation(samples, at));
  }
  return start;
}

/** The byte ranges of the samples `from` to `to` (exclusive). Neighbours are joined. */
export function piecesOf(samples: Samples, from: number, to: number): Piece[] {
  const pieces: Piece[] = [];
  for (let at = from; at < to; at++) {
    const offset = samples.offset[at] ?? 0;
    const size = samples.size[at] ?? 0;
    const last = pieces.at(-1);
    if (last && last.offset + last.size === offset) last.size += size;
    else pieces.push({ offset, size });
  }
  return pieces;
}

/** Total size of the samples `from` to `to` (exclusive), in bytes. */
export function bytesOf(samples: Samples, from: number, to: number): number {
  let bytes = 0;
  for (let at = from; at < to; at++) bytes += samples.size[at] ?? 0;
  return bytes;
}
