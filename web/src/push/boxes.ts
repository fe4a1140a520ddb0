/** The parts of ISO/IEC 14496-12 that a player needs of the media that it gives to the browser. */

export interface Track {
  id: number;
  video: boolean;
  /** Units per second. */
  timescale: number;
  /** As in RFC 6381. */
  codec: string;
}

export interface Chunk {
  /** The track_ID. */
  track: number;
  /** Decode time of its first sample, in the track's units. */
  time: number;
  /** Whether decoding can begin here. */
  independent: boolean;
  /** A media time and the time when it was captured, if the chunk tells (`prft`, 8.16.5). */
  captured: { time: number; at: number } | null;
}

interface Box {
  type: string;
  /** Where its content begins and ends. */
  at: number;
  end: number;
}

/** Seconds from 1900, the start of NTP time, to 1970. */
const NTP_EPOCH = 2_208_988_800;
/** Bytes before the boxes in a sample entry (12.1.3, 12.2.3). */
const VISUAL = 78;
const AUDIO = 28;

/**
 * Reads the tracks of a CMAF header; null if `bytes` are no header. Throws a RangeError if they are
 * cut off.
 */
export function readHeader(bytes: Uint8Array): Track[] | null {
  const view = viewOf(bytes);
  const moov = within(view, 0, bytes.length).find(({ type }) => type === 'moov');
  if (!moov) return null;
  return children(view, moov)
    .filter(({ type }) => type === 'trak')
    .map((trak) => {
      const tkhd = descend(view, trak, 'tkhd');
      const mdhd = descend(view, trak, 'mdia', 'mdhd');
      const hdlr = descend(view, trak, 'mdia', 'hdlr');
      const stsd = descend(view, trak, 'mdia', 'minf', 'stbl', 'stsd');
      const video = fourcc(view, hdlr.at + 8) === 'vide';
      // Version 1 has times of 64 bits.
      const wide = (box: Box) => view.getUint8(box.at) === 1;
      const entry = within(view, stsd.at + 8, stsd.end)[0];
      return {
        id: view.getUint32(tkhd.at + (wide(tkhd) ? 20 : 12)),
        video,
        timescale: view.getUint32(mdhd.at + (wide(mdhd) ? 20 : 12)),
        codec: entry ? codec(view, entry, video ? VISUAL : AUDIO) : '',
      };
    });
}

/** Reads the first fragment of a chunk or segment. Throws a RangeError if the bytes are not one. */
export function readChunk(bytes: Uint8Array): Chunk {
  const view = viewOf(bytes);
  let captured: Chunk['captured'] = null;
  let moof: Box | undefined;
  for (let at = 0; !moof; ) {
    const box = boxAt(view, at, bytes.length);
    if (box.type === 'prft') captured = reference(view, box);
    if (box.type === 'moof') moof = box;
    at = box.end;
  }
  const traf = descend(view, moof, 'traf');
  const [tfhd, tfdt, trun] = [
    descend(view, traf, 'tfhd'),
    descend(view, traf, 'tfdt'),
    descend(view, traf, 'trun'),
  ];
  const time =
    view.getUint8(tfdt.at) === 1 ? Number(view.getBigUint64(tfdt.at + 4)) : view.getUint32(tfdt.at + 4);
  return {
    track: view.getUint32(tfhd.at + 4),
    time,
    independent: (firstFlags(view, tfhd, trun) & 0x10000) === 0,
    captured,
  };
}

/** Flags of the first sample (8.8.7, 8.8.8). */
function firstFlags(view: DataView, tfhd: Box, trun: Box): number {
  const has = view.getUint32(trun.at);
  const skip = (flags: number, ...bits: number[]) => bits.filter((bit) => flags & bit).length * 4;
  const samples = trun.at + 8 + skip(has, 0x1);
  if (has & 0x4) return view.getUint32(samples);
  if (has & 0x400) return view.getUint32(samples + skip(has, 0x100, 0x200));
  const usual = view.getUint32(tfhd.at);
  if ((usual & 0x20) === 0) return 0;
  return view.getUint32(tfhd.at + 8 + (usual & 0x1 ? 8 : 0) + skip(usual, 0x2, 0x8, 0x10));
}

function reference(view: DataView, { at }: Box): Chunk['captured'] {
  const seconds = view.getUint32(at + 8) - NTP_EPOCH + view.getUint32(at + 12) / 2 ** 32;
  const time = view.getUint8(at) === 1 ? Number(view.getBigUint64(at + 16)) : view.getUint32(at + 16);
  return { time, at: seconds * 1000 };
}

/** The codec of a sample entry. */
function codec(view: DataView, entry: Box, fixed: number): string {
  const boxes = within(view, entry.at + fixed, entry.end);
  const configuration = (type: string) => boxes.find((box) => box.type === type)?.at ?? entry.end;
  const byte = (at: number) => view.getUint8(at);
  const two = (value: number) => String(value).padStart(2, '0');
  switch (entry.type) {
    case 'avc1':
    case 'avc3': {
      const at = configuration('avcC');
      return `${entry.type}.${[1, 2, 3]
        .map((i) =>
          byte(at + i)
            .toString(16)
            .padStart(2, '0'),
        )
        .join('')}`;
    }
    case 'hvc1':
    case 'hev1':
      return `${entry.type}.${hevc(view, configuration('hvcC'))}`;
    case 'av01': {
      const at = configuration('av1C');
      const [first, second] = [byte(at + 1), byte(at + 2)];
      const depth = second & 0x40 ? (second & 0x20 ? 12 : 10) : 8;
      return `av01.${first >> 5}.${two(first & 31)}${second & 0x80 ? 'H' : 'M'}.${two(depth)}`;
    }
    case 'mp4a':
      return `mp4a.${aac(view, configuration('esds') + 4, entry.end)}`;
    default:
      return entry.type;
  }
}

/** ISO/IEC 14496-15, annex E.3. */
function hevc(view: DataView, at: number): string {
  const first = view.getUint8(at + 1);
  let compatible = 0;
  for (let bit = 0; bit < 32; bit++) compatible += ((view.getUint32(at + 2) >>> bit) & 1) * 2 ** (31 - bit);
  const constraints = [6, 7, 8, 9, 10, 11].map((i) => view.getUint8(at + i));
  while (constraints.at(-1) === 0) constraints.pop();
  const profile = `${['', 'A', 'B', 'C'][first >> 6]}${first & 31}`;
  const level = `${first & 0x20 ? 'H' : 'L'}${view.getUint8(at + 12)}`;
  return [profile, hex(compatible), level, ...constraints.map(hex)].join('.');
}

/** The object type and the audio object type, from the descriptors of ISO/IEC 14496-1 7.2.6. */
function aac(view: DataView, from: number, end: number): string {
  let object = '';
  for (let at = from; at < end; ) {
    const tag = view.getUint8(at++);
    // The length is in groups of seven bits. The wanted descriptors are nested.
    let length = 0;
    for (let more = true; more; ) {
      const part = view.getUint8(at++);
      length = length * 128 + (part & 127);
      more = part > 127;
    }
    if (tag === 3) at += 3;
    else if (tag === 4) {
      object = hex(view.getUint8(at));
      at += 13;
    } else if (tag === 5 && object === '40') {
      const type = view.getUint8(at) >> 3;
      return `40.${type === 31 ? 32 + ((view.getUint16(at) >> 5) & 63) : type}`;
    } else at += length;
  }
  return object;
}

function hex(value: number): string {
  return value.toString(16).toUpperCase();
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function fourcc(view: DataView, at: number): string {
  return String.fromCharCode(...[0, 1, 2, 3].map((i) => view.getUint8(at + i)));
}

function boxAt(view: DataView, at: number, end: number): Box {
  const short = view.getUint32(at);
  const size = short === 1 ? Number(view.getBigUint64(at + 8)) : short;
  const head = short === 1 ? 16 : 8;
  if (size < head || at + size > end) throw new RangeError(`a box of ${size} bytes at byte ${at}`);
  return { type: fourcc(view, at + 4), at: at + head, end: at + size };
}

function within(view: DataView, from: number, end: number): Box[] {
  const boxes: Box[] = [];
  for (let at = from; at + 8 <= end; ) {
    const box = boxAt(view, at, end);
    boxes.push(box);
    at = box.end;
  }
  return boxes;
}

function children(view: DataView, box: Box): Box[] {
  return within(view, box.at, box.end);
}

function descend(view: DataView, box: Box, ...path: string[]): Box {
  return path.reduce((from, type) => {
    const found = children(view, from).find((child) => child.type === type);
    if (!found) throw new RangeError(`no ${type} at byte ${from.at}`);
    return found;
  }, box);
}
