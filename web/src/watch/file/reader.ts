import { boxAt, wholeBox } from './boxes';
import { type Cut, Cutter } from './cutter';
import { FileFailure } from './failure';
import { type Entry, Movie, playable, type Track, type TrackPart } from './movie';
import type { Ranges } from './ranges';
import { bytesOf, endOf, piecesOf, presentation, startOf } from './samples';
import { Fragmented, Progressive, type Supply } from './supply';

/** Most boxes before the index of a file. */
const MOST_BOXES = 1_000;
/** A file that begins within so many seconds of zero begins at zero, and a short pause is nothing. */
const NEAR_ZERO = 1;

/** A media segment, and the moments in it from which on it can be decoded, in seconds. */
export interface Segment {
  bytes: Uint8Array<ArrayBuffer>;
  entrances: number[];
}

/**
 * An MP4 file as MediaSource wants it: an initialization segment, then media segments of about a second with
 * picture and sound together, from any moment on. Only the bytes that are needed next are read.
 */
export class Reader {
  /** The tracks being read. */
  chosen: Track[] = [];
  /** Seconds; null when the file does not say how long it is. */
  duration: number | null = null;
  /** What SourceBuffer is to add to the times in segments, in seconds. */
  timestampOffset = 0;
  /** bit/s of what has been read. */
  bitrate: number | null = null;
  /** Pictures a second; null without pictures, or before the first is read. */
  frameRate: number | null = null;
  private supply: Supply;
  private cutter: Cutter | null = null;
  /** What is being read: again if that fails. */
  private cuts: Cut[] | null = null;
  /** Presentation time that becomes zero, in seconds. */
  private zero = 0;
  private readBits = 0;
  private readSeconds = 0;

  private constructor(
    private readonly file: Ranges,
    private readonly movie: Movie,
    /** Tracks that the browser plays; of each kind one is chosen. */
    readonly tracks: readonly Track[],
    private readonly start: number,
    private readonly index: { entries: Entry[]; end: number } | null,
  ) {
    this.supply = this.supplyOf([]);
  }

  /** Reads the index of a file, wherever in it it lies. */
  static async open(file: Ranges, decodes: (mime: string) => boolean, signal: AbortSignal): Promise<Reader> {
    let ftyp: Uint8Array = DEFAULT_FTYP;
    let moov: Uint8Array | null = null;
    let position = 0;
    for (let seen = 0; moov === null && seen < MOST_BOXES; seen++) {
      const box = await boxAt(file, position, signal);
      if (box === null) break;
      if (box.type === 'ftyp') ftyp = await wholeBox(file, box, signal);
      if (box.type === 'moov') moov = await wholeBox(file, box, signal);
      position = box.offset + box.size;
    }
    if (moov === null) {
      throw new FileFailure(
        'media',
        'The file has no index (moov box): it is cut off, or its recording was never finished.',
        `${file.size} bytes`,
      );
    }
    const header = new Uint8Array(ftyp.length + moov.length);
    header.set(ftyp);
    header.set(moov, ftyp.length);
    const movie = Movie.read(header);
    const tracks = playable(movie.tracks, decodes);
    const index = movie.fragmented ? await sidxAt(file, position, signal) : null;
    const reader = new Reader(file, movie, tracks, position, index);
    await reader.choose(tracks.find(({ kind }) => kind === 'audio')?.id ?? null, signal);
    reader.duration = await reader.measure(signal);
    return reader;
  }

  /** Chooses the audio track; what is read next is `header` and then segments from a `seek` on. */
  async choose(audio: number | null, signal: AbortSignal): Promise<void> {
    const video = this.tracks.find(({ kind }) => kind === 'video');
    const sound = this.tracks.find(({ id }) => id === audio);
    this.chosen = [video, sound].filter((track) => track !== undefined);
    this.supply = this.supplyOf(this.chosen);
    this.cutter = null;
    this.cuts = null;
    const first = [...(await this.supply.at(Number.NEGATIVE_INFINITY, signal))];
    // Some files have fragments of one track each.
    for (
      let more = 0;
      more < 8 && this.chosen.some((track) => !first.some((part) => part.track === track));
      more++
    )
      first.push(...((await this.supply.next(signal)) ?? []));
    if (first.length === 0) throw new FileFailure('media', 'The file has neither picture nor sound.', '');
    const leading = first.filter(({ track }) => track.kind === 'video');
    const start = Math.min(...(leading.length > 0 ? leading : first).map(presentedFrom));
    // What is presented before zero is not shown (priming of audio), but a picture before it would take all
    // that build on it along. A recording of a broadcast begins at any time: show it from zero.
    this.zero = start < 0 || start > NEAR_ZERO ? start : 0;
    // Segments have no negative decode times: all tracks are moved by the same, and SourceBuffer moves them back.
    const earliest = Math.min(
      ...first.map(({ track, samples }) => (samples.dts[0] ?? 0) / track.timescale + track.edit),
    );
    this.timestampOffset = Math.min(0, Math.floor((earliest - this.zero) * 1000) / 1000);
  }

  get mime(): string {
    return Movie.mime(this.chosen);
  }

  header(): Uint8Array<ArrayBuffer> {
    return this.movie.header(this.chosen);
  }

  /** Goes to where decoding must begin for what is shown at `time`, in seconds. */
  async seek(time: number, signal: AbortSignal): Promise<void> {
    this.cuts = null;
    this.cutter = new Cutter(await this.supply.at(time + this.zero, signal));
    this.cutter.seek(time + this.zero);
  }

  /** The next media segment, or null at the end. After a failure it may be asked for again. */
  async next(signal: AbortSignal): Promise<Segment | null> {
    for (;;) {
      this.cuts ??= this.cutter?.next() ?? null;
      const { cuts } = this;
      if (!cuts) {
        const parts = await this.supply.next(signal);
        if (parts === null) return null;
        this.cutter = new Cutter(parts);
        continue;
      }
      const pieces = cuts.flatMap(({ part, from, to }) => piecesOf(part.samples, from, to));
      const data = await this.file.gather(pieces, signal);
      this.cuts = null;
      const segments: Uint8Array[] = [];
      let at = 0;
      for (const { part, from, to } of cuts) {
        const { track, samples } = part;
        const bytes = bytesOf(samples, from, to);
        // Up, not to the nearest: a first picture a moment before zero would not be shown, nor what builds on it.
        const shift = Math.ceil((track.edit - this.zero - this.timestampOffset) * track.timescale);
        segments.push(this.movie.fragment(part, from, to, data.subarray(at, at + bytes), shift));
        at += bytes;
      }
      this.measureRate(cuts[0]?.part, cuts[0]?.from ?? 0, cuts[0]?.to ?? 0, data.length);
      return { bytes: joined(segments), entrances: this.entrances(cuts) };
    }
  }

  private entrances(cuts: readonly Cut[]): number[] {
    const lead = this.chosen[0];
    const cut = cuts.find(({ part }) => part.track === lead);
    if (!cut || !lead) return [];
    const { samples } = cut.part;
    const times: number[] = [];
    for (let at = cut.from; at < cut.to; at++) {
      if (samples.sync[at]) times.push(presentation(samples, at) / lead.timescale + lead.edit - this.zero);
    }
    return times;
  }

  private measureRate(part: TrackPart | undefined, from: number, to: number, bytes: number): void {
    if (!part || to <= from) return;
    const { track, samples } = part;
    let ticks = 0;
    for (let at = from; at < to; at++) ticks += samples.duration[at] ?? 0;
    this.readBits += bytes * 8;
    this.readSeconds += ticks / track.timescale;
    if (this.readSeconds > 0) this.bitrate = this.readBits / this.readSeconds;
    if (track.kind === 'video' && ticks > 0) this.frameRate = ((to - from) * track.timescale) / ticks;
  }

  private supplyOf(tracks: readonly Track[]): Supply {
    return this.movie.fragmented
      ? new Fragmented(this.file, this.movie, tracks, this.start, this.index?.entries ?? null)
      : new Progressive(tracks);
  }

  /** How long the file is: as its index says, or from its last fragment. */
  private async measure(signal: AbortSignal): Promise<number | null> {
    const { supply, movie } = this;
    let end = movie.duration ?? this.index?.end ?? null;
    if (end === null && supply instanceof Fragmented) {
      await supply.lookAtEnd(signal);
      const last = supply.lastKnown;
      const box = last === null ? null : await boxAt(this.file, last, signal);
      if (last !== null && box?.type === 'moof') {
        const parts = movie.parts(await wholeBox(this.file, box, signal), last, this.chosen, new Map());
        end = Math.max(...parts.map(({ track, samples }) => endOf(samples) / track.timescale + track.edit));
      }
    }
    return end !== null && Number.isFinite(end) && end > this.zero ? end - this.zero : null;
  }
}

/** Of a file without one: it has boxes of the first edition. */
const DEFAULT_FTYP = Uint8Array.from([
  0, 0, 0, 20, 0x66, 0x74, 0x79, 0x70, 0x69, 0x73, 0x6f, 0x6d, 0, 0, 0, 0, 0x69, 0x73, 0x6f, 0x6d,
]);

/** The index in front of the fragments, where there is one. */
async function sidxAt(file: Ranges, start: number, signal: AbortSignal) {
  let position = start;
  for (let seen = 0; seen < 10; seen++) {
    const box = await boxAt(file, position, signal);
    if (box === null || box.type === 'moof' || box.type === 'mdat') return null;
    if (box.type === 'sidx') {
      const index = Movie.index(await wholeBox(file, box, signal), position);
      const next = index && (await boxAt(file, index.after, signal));
      // Of a part of the file only, where every fragment has an index of its own.
      return next === null || next.type === 'mfra' ? index : null;
    }
    position += box.size;
  }
  return null;
}

function presentedFrom({ track, samples }: TrackPart): number {
  return startOf(samples) / track.timescale + track.edit;
}

function joined(arrays: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const array of arrays) {
    whole.set(array, at);
    at += array.length;
  }
  return whole;
}
