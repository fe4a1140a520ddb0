/** A stretch of time that is buffered, in seconds. */
export interface Range {
  start: number;
  end: number;
}

/** Less than this in front of the picture is nothing: times are rounded, and the last frame is not played to its end. */
const NOTHING = 0.02;
/** So far before a range the picture may stand and be in it: browsers bridge holes of about a frame. */
const NEAR = 0.03;
/** No frame is so short; just behind the start of a range lies what is in it. */
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
 * Where to jump, because there is nothing left to be played at `time` but something later. Null where the
 * picture is in a range, or where nothing follows.
 */
export function pastGap(ranges: readonly Range[], time: number): number | null {
  const here = rangeAt(ranges, time);
  if (here && here.end - time > NOTHING) return null;
  const next = ranges.find(({ start }) => start > time);
  return next ? next.start + JUST_BEHIND : null;
}
