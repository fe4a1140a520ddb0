import { DataStream, ISOFile, Log, MP4BoxBuffer, type Sample, type SampleEntry } from 'mp4box';
import { codecName } from '../../shared/codec';
import { FileFailure } from './failure';
import { endOf, fromFragment, fromTables, type Samples } from './samples';

// What it finds odd in a file is judged here; on the console it would look like an error of the page.
Log.error = () => undefined;

type Trak = ISOFile['moov']['traks'][number];
type Trex = NonNullable<ISOFile['moov']['mvex']>['trexs'][number];
/** The part of `mfra` that is read here; mp4box.js reads the box, and does not export its type. */
interface RandomAccess {
  tfras: readonly { track_ID: number; entries: readonly { time: number; moof_offset: number }[] }[];
}

/** Track kinds a page can play through MediaSource. */
export type Kind = 'video' | 'audio';

export interface Track {
  id: number;
  kind: Kind;
  /** RFC 6381. */
  codec: string;
  /** Units per second. */
  timescale: number;
  /** BCP 47 or ISO 639-2; empty when not said. */
  language: string;
  name: string;
  /** What the edit list adds to presentation times, in seconds. */
  edit: number;
  /** The samples of a progressive file; null in a fragmented one. */
  samples: Samples | null;
}

/** Samples of one track in a movie fragment. */
export interface TrackPart {
  track: Track;
  samples: Samples;
}

/** Where decoding may begin in a fragmented file. */
export interface Entry {
  /** Presentation time of `track`, in its timescale, without its edit list. */
  time: number;
  timescale: number;
  offset: number;
}

/**
 * A movie box: its tracks, and what makes MediaSource segments of them. Boxes are read and written by
 * mp4box.js; the sample tables are spread out here, since one object a sample would take a hundred times the bytes.
 */
export class Movie {
  readonly tracks: Track[] = [];
  /** Whether the samples are in movie fragments. */
  readonly fragmented: boolean;
  /** As the movie header says, in seconds; null when it does not. */
  readonly duration: number | null;
  private readonly file: ISOFile;
  private readonly defaults = new Map<number, Trex>();

  private constructor(header: Uint8Array) {
    this.file = parse(header);
    const { moov } = this.file;
    if (!moov) throw damaged('no moov box');
    for (const trex of moov.mvex?.trexs ?? []) this.defaults.set(trex.track_id, trex);
    // A file may announce fragments and have its samples in the movie box after all.
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
      // What mp4box.js wants of a track that it writes but did not list the samples of.
      trak.samples = [];
      // Times are moved by the edit list here; a browser that also did so would do it twice.
      trak.boxes = (trak.boxes ?? []).filter((box) => box?.type !== 'edts');
    }
    // What remains of the tables is what an initialization segment has.
    this.file.resetTables();
    this.file.onSegment = () => undefined;
  }

  /** Reads the ftyp and moov boxes of a file. */
  static read(header: Uint8Array): Movie {
    return orDamaged(() => new Movie(header));
  }

  /** MIME type of MediaSource for these tracks. */
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
   * A media segment: samples `from` up to `to` of a track, with `data` their bytes. `shift` is added to
   * decode times, in units of the track; the first must not become negative.
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
    // Composition offsets may be negative, which version 0 has no room for.
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

  /** The samples that a `moof` at `offset` of the file describes, of these tracks. */
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
   * What a `sidx` box at `offset` says: the fragments, when the last ends in seconds, and what position is behind
   * it. Null when it is an index of indices.
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

  /** What a `mfra` box says of a track, or of the one it speaks of. */
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

/** RFC 6381. QuickTime puts what AAC needs into a box of its own. */
function codecOf(entry: SampleEntry & { esds?: unknown; wave?: { esds?: unknown } }): string {
  const { wave } = entry;
  const hidden = entry.esds === undefined && wave?.esds !== undefined;
  if (hidden) entry.esds = wave.esds;
  const codec = entry.getCodec();
  // Otherwise mp4box.js would take it for an entry that needs no changing for MediaSource.
  if (hidden) entry.esds = undefined;
  // MP3: browsers know the object type in capital letters only.
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

/** What the edit list adds to presentation times, in seconds: its leading pause less where it begins in the media. */
function editOf(trak: Trak, movieTimescale: number): number {
  let pause = 0;
  for (const { media_time, segment_duration } of trak.edts?.elst?.entries ?? []) {
    if (media_time >= 0) return pause - media_time / trak.mdia.mdhd.timescale;
    pause += segment_duration / movieTimescale;
  }
  return 0;
}

/** Reads boxes. */
function parse(bytes: Uint8Array): ISOFile {
  guardTables(bytes);
  return orDamaged(() => {
    const buffer = MP4BoxBuffer.fromArrayBuffer(bytes.slice().buffer, 0);
    const file = new ISOFile(undefined, false);
    // Not by the constructor or appendBuffer: the one reads QuickTime's sound entries wrongly, the other lists samples.
    file.stream.insertBuffer(buffer);
    if (file.stream.initialized()) file.parse();
    return file;
  });
}

/** Boxes may lack whatever they must have: what goes wrong with what they say is the file's fault. */
function orDamaged<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof FileFailure ? error : damaged(String(error));
  }
}

/** `stsz` of samples of one size: it takes 20 bytes to claim four milliards of them, which the parser would list. */
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
 * The tracks that a browser decodes. Pictures without their sound are better than nothing (recorders write sound that
 * no browser decodes); a film without its pictures is refused.
 */
export function playable(tracks: readonly Track[], decodes: (mime: string) => boolean): Track[] {
  if (tracks.length === 0) throw new FileFailure('media', 'The file has neither picture nor sound.', '');
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
