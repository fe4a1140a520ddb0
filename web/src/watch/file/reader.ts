import { boxAt, wholeBox } from './boxes';
import { type Cut, Cutter } from './cutter';
import { FileFailure } from './failure';
import { type Entry, Movie, playable, type Track, type TrackPart } from './movie';
import type { Ranges } from './ranges';
import { bytesOf, endOf, piecesOf, presentation, startOf } from './samples';
import { Fragmented, Progressive, type Supply } from './supply';

/** Most boxes before the index of a file. */
const MOST_BOXES = 1_000;
/** A file whose first media come within this many seconds of zero begins at zero. */
const NEAR_ZERO = 1;

/** A media segment, and the times in it from which it can be decoded, in seconds. */
export interface Segment {
  bytes: Uint8Array<ArrayBuffer>;
  entrances: number[];
}

/**
 * Reads an MP4 file in the form that MediaSource needs: an initialization segment, then media
 * segments of about a second with video and audio together, from any time on. It reads only the
 * bytes that are needed next.
 */
export class Reader {
  /** The tracks being read. */
  chosen: Track[] = [];
  /** In seconds; null if the file does not give its duration. */
  duration: number | null = null;
  /** Seconds that SourceBuffer must add to the times in segments. */
  timestampOffset = 0;
  /** Bit rate of the media read so far, in bit/s. */
  bitrate: number | null = null;
  /** Frames per second; null without video, or before the first frame is read. */
  frameRate: number | null = null;
  private supply: Supply;
  private cutter: Cutter | null = null;
  /** The segment being read. After a failure it is read again. */
  private cuts: Cut[] | null = null;
  /** The presentation time that becomes zero, in seconds. */
  private zero = 0;
  private readBits = 0;
  private readSeconds = 0;

  private constructor(
    private readonly file: Ranges,
    private readonly movie: Movie,
    /** The tracks that the browser can play. One of each kind is chosen. */
    readonly tracks: readonly Track[],
    private readonly start: number,
    private readonly index: { entries: Entry[]; end: number } | null,
  ) {
    this.supply = this.supplyOf([]);
  }

  /** Reads a file's index, wherever it is in the file. */
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

  /** Chooses the audio track. Afterwards read `header`, then `seek`, then segments. */
  async choose(audioId: number | null, signal: AbortSignal): Promise<void> {
    const video = this.tracks.find(({ kind }) => kind === 'video');
    const audio = this.tracks.find(({ id }) => id === audioId);
    this.chosen = [video, audio].filter((track) => track !== undefined);
    this.supply = this.supplyOf(this.chosen);
    this.cutter = null;
    this.cuts = null;
    const first = [...(await this.supply.at(Number.NEGATIVE_INFINITY, signal))];
    // In some files, each fragment has only one track.
    for (
      let more = 0;
      more < 8 && this.chosen.some((track) => !first.some((part) => part.track === track));
      more++
    )
      first.push(...((await this.supply.next(signal)) ?? []));
    if (first.length === 0) throw new FileFailure('media', 'The file has neither video nor audio.', '');
    const leading = first.filter(({ track }) => track.kind === 'video');
    const start = Math.min(...(leading.length > 0 ? leading : first).map(presentedFrom));
    // Media presented before zero are not shown (as the priming of audio). But if a video frame
    // there were dropped, the frames that depend on it would be lost. A recording of a broadcast
    // may begin at any time, and is shown from zero.
    this.zero = start < 0 || start > NEAR_ZERO ? start : 0;
    // Segments cannot have negative decode times. All tracks are moved by the same time, and
    // SourceBuffer moves them back.
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

  /** Goes to where decoding must begin for the media shown at `time`, in seconds. */
  async seek(time: number, signal: AbortSignal): Promise<void> {
    this.cuts = null;
    this.cutter = new Cutter(await this.supply.at(time + this.zero, signal));
    this.cutter.seek(time + this.zero);
  }

  /** Reads the next media segment, or null at the end. After a failure, it may be called again. */
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
        // Rounded up, not to the nearest: a first frame just before zero would be dropped, with all
        // frames that depend on it.
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

  /** Duration of the file, from its index or from its last fragment. */
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

/** For a file without ftyp: its boxes are those of the first edition. */
const DEFAULT_FTYP = Uint8Array.from([
  0, 0, 0, 20, 0x66, 0x74, 0x79, 0x70, 0x69, 0x73, 0x6f, 0x6d, 0, 0, 0, 0, 0x69, 0x73, 0x6f, 0x6d,
]);

/** Finds the index before the fragments, if there is one. */
async function sidxAt(file: Ranges, start: number, signal: AbortSignal) {
  let position = start;
  for (let seen = 0; seen < 10; seen++) {
    const box = await boxAt(file, position, signal);
    if (box === null || box.type === 'moof' || box.type === 'mdat') return null;
    if (box.type === 'sidx') {
      const index = Movie.index(await wholeBox(file, box, signal), position);
      const next = index && (await boxAt(file, index.after, signal));
      // An index may cover only a part of the file, if each fragment has its own.
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
