import { DataStream, ISOFile, Log, MP4BoxBuffer, type Sample, type SampleEntry } from 'mp4box';
import { codecName } from '../../shared/codec';
import { FileFailure } from './failure';
import { endOf, fromFragment, fromTables, type Samples } from './samples';

// This module judges the file itself. On the console, mp4box.js's messages would look like errors
// of the page.
Log.error = () => undefined;

type Trak = ISOFile['moov']['traks'][number];
type Trex = NonNullable<ISOFile['moov']['mvex']>['trexs'][number];
/** The parts of `mfra` that are used here. mp4box.js reads the box but does not export its type. */
interface RandomAccess {
  tfras: readonly { track_ID: number; entries: readonly { time: number; moof_offset: number }[] }[];
}

/** The kinds of track that a page can play through MediaSource. */
export type Kind = 'video' | 'audio';

export interface Track {
  id: number;
  kind: Kind;
  /** RFC 6381. */
  codec: string;
  /** Units per second. */
  timescale: number;
  /** BCP 47 or ISO 639-2; empty if not given. */
  language: string;
  name: string;
  /** Seconds that the edit list adds to presentation times. */
  edit: number;
  /** The samples of a progressive file; null for a fragmented file. */
  samples: Samples | null;
}

/** Samples of a track in one movie fragment. */
export interface TrackPart {
  track: Track;
  samples: Samples;
}

/** A place in a fragmented file where decoding may begin. */
export interface Entry {
  /** Presentation time in the track's timescale, without its edit list. */
  time: number;
  timescale: number;
  offset: number;
}

/**
 * A movie box: its tracks, and the making of MediaSource segments. mp4box.js reads and writes the
 * boxes. The sample tables are expanded here: one object for each sample would take a hundred times
 * the memory.
 */
export class Movie {
  readonly tracks: Track[] = [];
  /** Whether the samples are in movie fragments. */
  readonly fragmented: boolean;
  /** In seconds, from the movie header; null if the header does not give it. */
  readonly duration: number | null;
  private readonly file: ISOFile;
  private readonly defaults = new Map<number, Trex>();

  private constructor(header: Uint8Array) {
    this.file = parse(header);
    const { moov } = this.file;
    if (!moov) throw damaged('no moov box');
    for (const trex of moov.mvex?.trexs ?? []) this.defaults.set(trex.track_id, trex);
    // A file may announce fragments but have its samples in the movie box.
    this.fragmented =
      moov.mvex !== undefined &&
      moov.traks.every((trak) => (trak.mdia?.minf?.stbl?.stsz?.sample_sizes.length ?? 0) === 0);
    for (const trak of moov.traks) {
      const track = this.track(trak);
      if (track) this.tracks.push(track);
    }
    const scale = moov.mvhd?.timescale;
    const long = this.fragmented ? moov.mvex?.mehd?.fragment_duration || moov.mvhd?.duration : 0;
    const longest = Math.max(
      ...this.tracks.map(({ samples, timescale, edit }) =>
        samples ? endOf(samples) / timescale + edit : Number.NEGATIVE_INFINITY,
      ),
    );
    this.duration = this.fragmented ? (long && scale && long < 0xffff_ffff ? long / scale : null) : longest;
    for (const trak of moov.traks) {
      // mp4box.js needs this for a track that it writes without having listed its samples.
      trak.samples = [];
      // Times here already include the edit list; a browser must not apply it again.
      trak.boxes = (trak.boxes ?? []).filter((box) => box?.type !== 'edts');
    }
    // What is left of the tables is what an initialization segment has.
    this.file.resetTables();
    this.file.onSegment = () => undefined;
  }

  /** Reads the ftyp and moov boxes of a file. */
  static read(header: Uint8Array): Movie {
    return orDamaged(() => new Movie(header));
  }

  /** The MIME type of these tracks for MediaSource. */
  static mime(tracks: readonly Track[]): string {
    const kind = tracks.some((track) => track.kind === 'video') ? 'video' : 'audio';
    return `${kind}/mp4; codecs="${tracks.map(({ codec }) => codec).join(', ')}"`;
  }

  /** The initialization segment of these tracks. */
  header(tracks: readonly Track[]): Uint8Array<ArrayBuffer> {
    for (const { id } of tracks) this.file.setSegmentOptions(id, null, {});
    const { buffer } = this.file.initializeSegmentation('combined');
    for (const { id } of tracks) this.file.unsetSegmentOptions(id);
    return new Uint8Array(buffer);
  }

  /**
   * Makes a media segment of the samples `from` to `to` (exclusive) of a track; `data` is their
   * bytes. `shift` is added to decode times, in the track's units. The first time must not become
   * negative.
   */
  fragment(part: TrackPart, from: number, to: number, data: Uint8Array, shift: number): Uint8Array {
    const { track, samples } = part;
    const listed: Pick<Sample, 'track_id' | 'dts' | 'cts' | 'duration' | 'size' | 'is_sync'>[] = [];
    for (let at = from; at < to; at++) {
      const dts = (samples.dts[at] ?? 0) + shift;
      listed.push({
        track_id: track.id,
        dts,
        cts: dts + (samples.compositionOffset[at] ?? 0),
        duration: samples.duration[at] ?? 0,
        size: samples.size[at] ?? 0,
        is_sync: samples.sync[at] === 1,
      });
    }
    const moof = this.file.createMoof(listed as Sample[]);
    const run = moof?.trafs[0]?.truns[0];
    if (!moof || !run) throw damaged('an empty fragment');
    // Composition offsets may be negative, and version 0 cannot express that.
    run.version = 1;
    moof.computeSize();
    run.data_offset = moof.size + 8;
    const stream = new DataStream();
    moof.write(stream as never);
    const head = new Uint8Array(stream.buffer);
    const segment = new Uint8Array(head.length + 8 + data.length);
    segment.set(head);
    new DataView(segment.buffer).setUint32(head.length, 8 + data.length);
    segment.set([0x6d, 0x64, 0x61, 0x74], head.length + 4);
    segment.set(data, head.length + 8);
    return segment;
  }

  /** The samples of these tracks that a `moof` at `offset` in the file describes. */
  parts(
    moofBytes: Uint8Array,
    offset: number,
    tracks: readonly Track[],
    expected: Map<number, number>,
  ): TrackPart[] {
    const moof = parse(moofBytes).moofs[0];
    if (!moof) throw damaged('a moof box that cannot be read');
    const parts: TrackPart[] = [];
    let end = offset;
    for (const [i, traf] of (moof.trafs ?? []).entries()) {
      const { tfhd } = traf;
      const trex = this.defaults.get(tfhd?.track_id);
      if (!tfhd || !traf.truns) continue;
      const fromMoof = i === 0 || (tfhd.flags & DEFAULT_BASE_IS_MOOF) !== 0;
      const decodeTime = traf.tfdt?.baseMediaDecodeTime ?? expected.get(tfhd.track_id) ?? 0;
      const { samples, end: after } = fromFragment({
        baseOffset: tfhd.flags & HAS_BASE_OFFSET ? tfhd.base_data_offset : fromMoof ? offset : end,
        decodeTime,
        defaults: {
          duration:
            tfhd.flags & HAS_DURATION ? tfhd.default_sample_duration : (trex?.default_sample_duration ?? 0),
          size: tfhd.flags & HAS_SIZE ? tfhd.default_sample_size : (trex?.default_sample_size ?? 0),
          flags: tfhd.flags & HAS_FLAGS ? tfhd.default_sample_flags : (trex?.default_sample_flags ?? 0),
        },
        runs: traf.truns.map((run) => ({
          sample_count: run.sample_count,
          data_offset: run.flags & RUN_HAS_OFFSET ? run.data_offset : undefined,
          first_sample_flags: run.flags & RUN_HAS_FIRST_FLAGS ? run.first_sample_flags : undefined,
          sample_duration: run.sample_duration,
          sample_size: run.sample_size,
          sample_flags: run.sample_flags,
          sample_composition_time_offset: run.sample_composition_time_offset,
        })),
      });
      end = after;
      const last = samples.count - 1;
      if (last < 0) continue;
      expected.set(tfhd.track_id, (samples.dts[last] ?? 0) + (samples.duration[last] ?? 0));
      const track = tracks.find(({ id }) => id === tfhd.track_id);
      if (track) parts.push({ track, samples });
    }
    return parts;
  }

  /**
   * Reads a `sidx` box at `offset`: the fragments, the end of the last one in seconds, and the
   * position after it. Null if it is an index of other indexes.
   */
  static index(box: Uint8Array, offset: number): { entries: Entry[]; end: number; after: number } | null {
    const sidx = parse(box).sidx;
    if (!sidx || !(sidx.timescale > 0) || sidx.references.some((reference) => reference.reference_type !== 0))
      return null;
    const { timescale } = sidx;
    let at = offset + box.length + sidx.first_offset;
    let time = sidx.earliest_presentation_time;
    const entries: Entry[] = [];
    for (const reference of sidx.references) {
      entries.push({ time, timescale, offset: at });
      at += reference.referenced_size;
      time += reference.subsegment_duration;
    }
    return { entries, end: time / timescale, after: at };
  }

  /** The entries of a `mfra` box for the wanted track, or for the track that it describes. */
  entries(box: Uint8Array, wanted: Track): Entry[] {
    const mfra = (parse(box) as unknown as { mfra?: RandomAccess }).mfra;
    const tfra = mfra?.tfras.find(({ track_ID }) => track_ID === wanted.id) ?? mfra?.tfras[0];
    const track = this.tracks.find(({ id }) => id === tfra?.track_ID);
    if (!tfra || !track) return [];
    return tfra.entries.map(({ time, moof_offset }) => ({
      time,
      timescale: track.timescale,
      offset: moof_offset,
    }));
  }

  private track(trak: Trak): Track | null {
    const handler = trak.mdia?.hdlr?.handler;
    const kind = handler === 'vide' ? 'video' : handler === 'soun' ? 'audio' : null;
    const tables = trak.mdia?.minf?.stbl;
    const entry = tables?.stsd?.entries[0];
    if (kind === null || !entry) return null;
    const { timescale } = trak.mdia.mdhd;
    if (!(timescale > 0)) throw damaged('a track without a timescale');
    const chunks = tables.stco ?? tables.co64;
    const sizes = tables.stsz ?? tables.stz2;
    const samples =
      this.fragmented || !chunks || !sizes ? null : fromTables({ ...tables, stsz: sizes, stco: chunks });
    if (!this.fragmented && (samples === null || samples.count === 0)) return null;
    const language = trak.mdia.elng?.extended_language ?? trak.mdia.mdhd.languageString ?? '';
    return {
      id: trak.tkhd.track_id,
      kind,
      codec: codecOf(entry),
      timescale,
      language: language === 'und' ? '' : language,
      name: trak.mdia.hdlr.name ?? '',
      edit: editOf(trak, this.file.moov.mvhd?.timescale ?? 1),
      samples,
    };
  }
}

/** RFC 6381 name. QuickTime puts AAC's configuration into a box of its own. */
function codecOf(entry: SampleEntry & { esds?: unknown; wave?: { esds?: unknown } }): string {
  const { wave } = entry;
  const hidden = entry.esds === undefined && wave?.esds !== undefined;
  if (hidden) entry.esds = wave.esds;
  const codec = entry.getCodec();
  // Otherwise mp4box.js would write the entry to MediaSource unchanged.
  if (hidden) entry.esds = undefined;
  // MP3: browsers accept the object type only in capital letters.
  return codec === 'mp4a.6b' ? 'mp4a.6B' : codec;
}

/** Flags of `tfhd` (ISO/IEC 14496-12, 8.8.7). */
const HAS_BASE_OFFSET = 0x1;
const HAS_DURATION = 0x8;
const HAS_SIZE = 0x10;
const HAS_FLAGS = 0x20;
const DEFAULT_BASE_IS_MOOF = 0x2_0000;
/** Flags of `trun` (8.8.8). */
const RUN_HAS_OFFSET = 0x1;
const RUN_HAS_FIRST_FLAGS = 0x4;

/**
 * Seconds that the edit list adds to presentation times: the pause at the beginning, minus the
 * media time at which it starts.
 */
function editOf(trak: Trak, movieTimescale: number): number {
  let pause = 0;
  for (const { media_time, segment_duration } of trak.edts?.elst?.entries ?? []) {
    if (media_time >= 0) return pause - media_time / trak.mdia.mdhd.timescale;
    pause += segment_duration / movieTimescale;
  }
  return 0;
}

/** Parses boxes. */
function parse(bytes: Uint8Array): ISOFile {
  guardTables(bytes);
  return orDamaged(() => {
    const buffer = MP4BoxBuffer.fromArrayBuffer(bytes.slice().buffer, 0);
    const file = new ISOFile(undefined, false);
    // The constructor would read QuickTime's sound entries wrongly, and appendBuffer would list the
    // samples.
    file.stream.insertBuffer(buffer);
    if (file.stream.initialized()) file.parse();
    return file;
  });
}

/**
 * A broken file may lack required boxes, so an exception from reading is reported as a fault of the
 * file.
 */
function orDamaged<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof FileFailure ? error : damaged(String(error));
  }
}

/**
 * Checks `stsz` boxes with samples of equal size. With 20 bytes such a box can claim four billion
 * samples, and the parser would list them all.
 */
function guardTables(bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at + 20 <= bytes.length; at++) {
    if (view.getUint32(at) !== STSZ) continue;
    if (view.getUint32(at + 8) !== 0 && view.getUint32(at + 12) > MOST_EQUAL_SAMPLES)
      throw damaged('too many samples');
  }
}

const STSZ = 0x7374737a;
const MOST_EQUAL_SAMPLES = 20_000_000;

export function damaged(detail: string): FileFailure {
  return new FileFailure('media', 'The index of the file is damaged.', detail);
}

/**
 * The tracks that the browser can decode. Video without its audio is accepted, because some
 * recorders write audio that no browser decodes. A file without its video is refused.
 */
export function playable(tracks: readonly Track[], decodes: (mime: string) => boolean): Track[] {
  if (tracks.length === 0) throw new FileFailure('media', 'The file has neither video nor audio.', '');
  const decoded = tracks.filter((track) => decodes(Movie.mime([track])));
  const leading = tracks.some(({ kind }) => kind === 'video') ? 'video' : 'audio';
  if (!decoded.some(({ kind }) => kind === leading)) {
    const lacking = tracks.filter(({ kind }) => kind === leading);
    const codecs = lacking.map(({ codec }) => codec).join(', ');
    if (/\benc[va]\b/.test(codecs)) {
      throw new FileFailure('codec', 'The file is encrypted, and this page has no key.', codecs);
    }
    const names = [...new Set(lacking.map(({ codec }) => codecName(codec)))].join(' and ');
    throw new FileFailure(
      'codec',
      `The file is in ${names}, which this browser does not decode. Another browser or a player such as VLC may play it.`,
      codecs,
    );
  }
  return decoded;
}
