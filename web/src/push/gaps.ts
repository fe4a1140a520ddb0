/** A buffered range, in seconds. */
export interface Range {
  start: number;
  end: number;
}

/**
 * With less than this ahead of the playhead, nothing is left: times are rounded, and the last
 * frame is not played to its end.
 */
const NOTHING = 0.02;
/** A playhead this far before a range is in the range: browsers bridge holes of about a frame. */
const NEAR = 0.03;
/** Shorter than any frame: a position this far behind the start of a range is in the range. */
const JUST_BEHIND = 0.001;

export function rangesOf(buffered: TimeRanges): Range[] {
  return Array.from({ length: buffered.length }, (_, i) => ({
    start: buffered.start(i),
    end: buffered.end(i),
  }));
}

/** The range that is being played at `time`. */
export function rangeAt(ranges: readonly Range[], time: number): Range | null {
  return ranges.find(({ start, end }) => start <= time + NEAR && time < end) ?? null;
}

/**
 * Where to jump when nothing is left to play at `time` but there are media later. Null if the
 * playhead is in a range, or if nothing follows.
 */
export function pastGap(ranges: readonly Range[], time: number): number | null {
  const here = rangeAt(ranges, time);
  if (here && here.end - time > NOTHING) return null;
  const next = ranges.find(({ start }) => start > time);
  return next ? next.start + JUST_BEHIND : null;
}
