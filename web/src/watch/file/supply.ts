import { boxAt, type TopBox, wholeBox } from './boxes';
import type { Entry, Movie, Track, TrackPart } from './movie';
import type { Ranges } from './ranges';
import { presentation } from './samples';

/**
 * The source of the samples: all at once for a progressive file, fragment by fragment for a
 * fragmented one.
 */
export interface Supply {
  /** The first samples for the media presented at `time`, in seconds. */
  at(time: number, signal: AbortSignal): Promise<TrackPart[]>;
  /** The next samples; null at the end. */
  next(signal: AbortSignal): Promise<TrackPart[] | null>;
}

/** A progressive file: all samples are in the movie box. */
export class Progressive implements Supply {
  private readonly parts: TrackPart[];

  constructor(tracks: readonly Track[]) {
    this.parts = tracks.flatMap((track) => (track.samples ? [{ track, samples: track.samples }] : []));
  }

  async at(): Promise<TrackPart[]> {
    return this.parts;
  }

  async next(): Promise<null> {
    return null;
  }
}

/** Most boxes to visit on the way to a place that is in no index. */
const FARTHEST_WALK = 100_000;

/** A jump this close to the beginning needs no index, in seconds. */
const NEAR = 5;

/** A fragment in which decoding may begin. */
interface Known {
  /** Time of its beginning, in seconds. */
  time: number;
  offset: number;
}

/**
 * A fragmented file: movie fragments, one after the other. An index (sidx at the front, mfra at the
 * end) tells where they are. Without an index, a jump ahead reads the headers of the fragments in
 * between, but not their media.
 */
export class Fragmented implements Supply {
  private position: number;
  /** Known fragments in which decoding may begin, in file order. */
  private known: Known[] = [];
  /** Whether `known` came from an index of the whole file. */
  private indexed: boolean;
  /** Whether the index at the end has been looked for. */
  private looked = false;
  private expected = new Map<number, number>();

  /** `start`: the first box after the movie's. `index`: the content of a sidx box. */
  constructor(
    private readonly file: Ranges,
    private readonly movie: Movie,
    private readonly tracks: readonly Track[],
    private readonly start: number,
    index: readonly Entry[] | null,
  ) {
    this.position = start;
    this.indexed = index !== null && index.length > 0;
    this.know(index ?? []);
  }

  async at(time: number, signal: AbortSignal): Promise<TrackPart[]> {
    const first = this.known[0]?.time ?? Number.NEGATIVE_INFINITY;
    if (!this.indexed && !this.looked && time > first + NEAR) await this.lookAtEnd(signal);
    // Begins one entry earlier: fragments of other tracks lie between two fragments of the leading
    // track, and may belong to either.
    const entry = this.known.findLastIndex((known) => known.time <= time) - 1;
    this.position = this.known[entry]?.offset ?? this.start;
    this.expected = new Map();
    let begin = this.position;
    let chosen: number | null = null;
    for (;;) {
      const parts = await this.next(signal);
      if (parts === null) break;
      if (!parts.some(({ track }) => track === this.lead)) continue;
      const entrance = entranceOf(parts, this.lead);
      if (entrance !== null && (entrance <= time || chosen === null)) chosen = begin;
      if (entrance !== null && entrance > time) break;
      begin = this.position;
    }
    this.position = chosen ?? this.start;
    this.expected = new Map();
    return (await this.next(signal)) ?? [];
  }

  async next(signal: AbortSignal): Promise<TrackPart[] | null> {
    for (let walked = 0; walked < FARTHEST_WALK; walked++) {
      const box: TopBox | null = await boxAt(this.file, this.position, signal);
      if (box === null) return null;
      this.position = box.offset + box.size;
      if (box.type !== 'moof') continue;
      const bytes = await wholeBox(this.file, box, signal);
      const parts = this.movie.parts(bytes, box.offset, this.tracks, this.expected);
      if (parts.length === 0) continue;
      const time = entranceOf(parts, this.lead);
      if (time !== null && !this.indexed && box.offset > (this.known.at(-1)?.offset ?? -1)) {
        this.known.push({ time, offset: box.offset });
      }
      return parts;
    }
    return null;
  }

  /** Reads the index at the end, if there is one. */
  async lookAtEnd(signal: AbortSignal): Promise<void> {
    this.looked = true;
    const size = this.file.size ?? 0;
    // mfro, the last box of mfra, has 16 bytes and ends with the length of mfra (8.8.11).
    const tail = await this.file.read(Math.max(0, size - 16), 16, signal);
    if (tail.length < 16 || String.fromCharCode(...tail.subarray(4, 8)) !== 'mfro') return;
    const offset = size - new DataView(tail.buffer, tail.byteOffset).getUint32(12);
    if (offset < this.start || offset >= size) return;
    const box = await boxAt(this.file, offset, signal);
    if (box?.type !== 'mfra' || this.lead === undefined) return;
    const entries = this.movie.entries(await wholeBox(this.file, box, signal), this.lead);
    if (entries.length === 0) return;
    this.indexed = true;
    this.known = [];
    this.know(entries);
  }

  /** The last fragment in the index. */
  get lastKnown(): number | null {
    return this.indexed ? (this.known.at(-1)?.offset ?? null) : null;
  }

  /** The track that decides where decoding may begin. */
  private get lead(): Track | undefined {
    return this.tracks.find(({ kind }) => kind === 'video') ?? this.tracks[0];
  }

  private know(entries: readonly Entry[]): void {
    const edit = this.lead?.edit ?? 0;
    for (const { time, timescale, offset } of entries) {
      this.known.push({ time: time / timescale + edit, offset });
    }
  }
}

/** Presentation time of the first sync sample of `lead`, in seconds; null if there is none. */
function entranceOf(parts: readonly TrackPart[], lead: Track | undefined): number | null {
  const part = parts.find(({ track }) => track === lead);
  const at = part?.samples.sync.indexOf(1) ?? -1;
  return part && at >= 0 ? presentation(part.samples, at) / part.track.timescale + part.track.edit : null;
}
