/**
 * Seconds of media that stay buffered whatever the distance from live, against short network
 * problems.
 */
const RESERVE = 0.45;
/**
 * How long past buffer levels count, in milliseconds. The least of them shows what can be spared.
 */
const MEMORY = 5_000;
/** Fastest playback near live. Speech that is a tenth faster still sounds natural. */
const FASTEST = 1.1;
/** A viewer further behind than this, in seconds, plays faster. That is audible, but short. */
const FAR = 1;
const FASTEST_WHEN_FAR = 1.3;
/** Change of rate for each second of excess. */
const GAIN = 0.2;
/**
 * A viewer too far behind by more than this jumps ahead, in seconds: catching up would take too
 * long.
 */
const TOO_FAR = 6;

/**
 * Catching up begins at the first figure and ends at the second, in seconds too far behind. Two
 * figures avoid switching to and fro.
 */
export interface Band {
  begin: number;
  end: number;
}

/** For parts, and for whole segments. The distance of the latter is known less exactly. */
export const LOW_LATENCY: Band = { begin: 0.15, end: 0.03 };
export const WHOLE_SEGMENTS: Band = { begin: 0.9, end: 0.3 };

/**
 * Computes the playback rate that brings a viewer to the distance from live that the server asks
 * for (PART-HOLD-BACK).
 *
 * hls.js speeds up only while more than a second is buffered, and a server with short parts asks
 * for less than that. Here the measure is the part of the buffer that was never used: the least
 * buffered during the last seconds. A viewer 4 to 6 s too far behind is within a second of the
 * target in less than 20 s. Times are arguments, in milliseconds on one clock.
 */
export class Pace {
  private samples: { at: number; buffer: number }[] = [];
  private since: number | null = null;
  private catchingUp = false;
  private last = 0;

  constructor(private readonly band: Band = LOW_LATENCY) {}

  /** Forgets past buffer levels: after a jump, a pause or a stall they are void. */
  reset(): void {
    this.samples = [];
    this.since = null;
    this.catchingUp = false;
    this.last = 0;
  }

  /**
   * The present rate. `latency`, `target` and `buffer` are in seconds. The buffer ends where
   * the first of the tracks ends. Call this a few times a second.
   */
  rate(now: number, latency: number, target: number, buffer: number): number {
    this.since ??= now;
    this.samples.push({ at: now, buffer });
    this.samples = this.samples.filter(({ at }) => at > now - MEMORY);
    const spare = Math.min(...this.samples.map((sample) => sample.buffer)) - RESERVE;
    const excess = Math.min(latency - target, spare);
    this.last = 0;
    // A second is the shortest time that shows how unevenly the parts arrive.
    if (now - this.since < 1_000) return 1;
    this.last = excess;
    if (excess > this.band.begin) this.catchingUp = true;
    else if (excess < this.band.end) this.catchingUp = false;
    if (!this.catchingUp) return 1;
    const fastest = excess > FAR ? FASTEST_WHEN_FAR : FASTEST;
    return Math.min(fastest, 1 + Math.max(0.01, Math.round(excess * GAIN * 100) / 100));
  }

  /**
   * By how many seconds to jump, or 0: at the last call of `rate`, live was too far ahead to catch
   * up with. The jump ends where media are buffered, even if that is not yet as near to live as the
   * server asks for: hls.js would not load the media between the buffer and the new place.
   */
  jump(): number {
    return this.last > TOO_FAR ? this.last : 0;
  }
}
