import { FileFailure } from './failure';
import type { Ranges } from './ranges';

/** A top-level box of a file (ISO/IEC 14496-12, 4.2). */
export interface TopBox {
  type: string;
  offset: number;
  /** In bytes, with the header. To the end of the file if the box says so. */
  size: number;
}

/** The longest box that is read whole, in bytes: the index of a file that lasts a day. */
const LONGEST = 64 * 1024 * 1024;

/** The types with which an MP4 file may begin. Early QuickTime files have no ftyp. */
const FIRST = /^(ftyp|styp|moov|mdat|free|skip|wide|pnot|uuid|pdin|sidx|moof)$/;

/** Finds the box at `offset`, or null at the end of the file. */
export async function boxAt(file: Ranges, offset: number, signal: AbortSignal): Promise<TopBox | null> {
  const head = await file.read(offset, 16, signal);
  if (head.length < 8) return null;
  const view = new DataView(head.buffer, head.byteOffset, head.length);
  const type = String.fromCharCode(...head.subarray(4, 8));
  const short = view.getUint32(0);
  let size = short;
  if (short === 1 && head.length === 16) size = Number(view.getBigUint64(8));
  if (short === 0) size = (file.size ?? 0) - offset;
  const possible = offset === 0 ? FIRST.test(type) : /^[\x20-\x7e\xa9]{4}$/.test(type);
  if (size < 8 || !possible) {
    throw new FileFailure(
      'media',
      offset === 0 ? 'This is not an MP4 file.' : 'The file is damaged: it is not made of boxes all along.',
      `at byte ${offset}`,
    );
  }
  return { type, offset, size };
}

/** Reads all bytes of a box. */
export async function wholeBox(file: Ranges, box: TopBox, signal: AbortSignal): Promise<Uint8Array> {
  if (box.size > LONGEST || box.offset + box.size > (file.size ?? 0)) {
    throw new FileFailure(
      'media',
      'The file is cut off or damaged: its index does not lie within it.',
      `${box.type} of ${box.size} bytes at byte ${box.offset}`,
    );
  }
  return file.read(box.offset, box.size, signal);
}
