import type { TrackPart } from './movie';
import { bytesOf, firstFrom, syncBefore } from './samples';

/**
 * Duration of a segment in seconds. A viewer waits for at most this much before the first frame.
 */
const LONG = 1;
/** Most bytes of a segment, unless a single sample is larger. */
const LARGE = 4 * 1024 * 1024;

/** The samples `from` to `to` (exclusive) of a track, as a part of the next segment. */
export interface Cut {
  part: TrackPart;
  from: number;
  to: number;
}

/**
 * Cuts the samples of several tracks into common segments of about a second, in decode order.
 * Decode times are seconds on the timeline that the tracks share.
 */
export class Cutter {
  private readonly at: number[];

  constructor(private readonly parts: readonly TrackPart[]) {
    this.at = parts.map(() => 0);
  }

  /** The content of the next segment; null at the end. */
  next(): Cut[] | null {
    const begin = Math.min(...this.parts.map((part, i) => decodeTime(part, this.at[i] ?? 0)));
    if (begin === Number.POSITIVE_INFINITY) return null;
    let cuts: Cut[] = [];
    for (let long = LONG; long > LONG / 64; long /= 2) {
      cuts = this.parts.map((part, i) => this.upTo(part, this.at[i] ?? 0, begin + long));
      if (cuts.reduce((sum, { part, from, to }) => sum + bytesOf(part.samples, from, to), 0) <= LARGE) break;
    }
    for (const [i, { to }] of cuts.entries()) this.at[i] = to;
    return cuts.filter(({ from, to }) => to > from);
  }

  /** Goes to where decoding must begin for the media presented at `time`, in seconds. */
  seek(time: number): void {
    const leader = this.parts.findIndex(({ track }) => track.kind === 'video');
    let from = time;
    const video = this.parts[leader];
    if (video) {
      const { track, samples } = video;
      this.at[leader] = syncBefore(samples, (time - track.edit) * track.timescale);
      from = decodeTime(video, this.at[leader] ?? 0);
    }
    for (const [i, { track, samples }] of this.parts.entries()) {
      if (i === leader) continue;
      // One sample earlier, because it may last beyond this time.
      this.at[i] = Math.max(0, firstFrom(samples, (from - track.edit) * track.timescale) - 1);
    }
  }

  private upTo(part: TrackPart, from: number, end: number): Cut {
    const { track, samples } = part;
    // The first sample is due now, even if rounding says otherwise.
    const least = decodeTime(part, from) < end ? from + 1 : from;
    return { part, from, to: Math.max(least, firstFrom(samples, (end - track.edit) * track.timescale)) };
  }
}

/** Decode time of a sample in seconds; Infinity after the last sample. */
function decodeTime({ track, samples }: TrackPart, at: number): number {
  return at < samples.count
    ? (samples.dts[at] ?? 0) / track.timescale + track.edit
    : Number.POSITIVE_INFINITY;
}
