import type { TrackPart } from './movie';
import { bytesOf, firstFrom, syncBefore } from './samples';

/** Media of one segment, in seconds: what a viewer waits for at most before something is shown. */
const LONG = 1;
/** Most bytes of one segment, unless a single sample has more. */
const LARGE = 4 * 1024 * 1024;

/** Samples `from` up to `to` of a track: part of the next segment. */
export interface Cut {
  part: TrackPart;
  from: number;
  to: number;
}

/**
 * Cuts the samples of several tracks into segments of about a second, all tracks together, in the order of
 * their decode times. Decode times are seconds on the timeline that the tracks share.
 */
export class Cutter {
  private readonly at: number[];

  constructor(private readonly parts: readonly TrackPart[]) {
    this.at = parts.map(() => 0);
  }

  /** What the next segment holds; null when nothing is left. */
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

  /** Goes to where decoding must begin for what is presented at `time`, in seconds. */
  seek(time: number): void {
    const video = this.parts.findIndex(({ track }) => track.kind === 'video');
    let from = time;
    const pictures = this.parts[video];
    if (pictures) {
      const { track, samples } = pictures;
      this.at[video] = syncBefore(samples, (time - track.edit) * track.timescale);
      from = decodeTime(pictures, this.at[video] ?? 0);
    }
    for (const [i, { track, samples }] of this.parts.entries()) {
      if (i === video) continue;
      // One more before: it may reach into the time.
      this.at[i] = Math.max(0, firstFrom(samples, (from - track.edit) * track.timescale) - 1);
    }
  }

  private upTo(part: TrackPart, from: number, end: number): Cut {
    const { track, samples } = part;
    // The first sample is due now, by whatever rounding.
    const least = decodeTime(part, from) < end ? from + 1 : from;
    return { part, from, to: Math.max(least, firstFrom(samples, (end - track.edit) * track.timescale)) };
  }
}

/** When a sample is due to be decoded, in seconds; Infinity behind the last. */
function decodeTime({ track, samples }: TrackPart, at: number): number {
  return at < samples.count
    ? (samples.dts[at] ?? 0) / track.timescale + track.edit
    : Number.POSITIVE_INFINITY;
}
