/** Media kept back whatever the distance from live, in seconds: what a hiccup of the network may cost. */
const RESERVE = 0.45;
/** How long the least buffer of the past counts as proof of what can be spared, in milliseconds. */
const MEMORY = 5_000;
/** Fastest playback near live. Speech at a tenth above its speed still sounds like itself. */
const FASTEST = 1.1;
/** Fastest playback of who is more than so many seconds too far behind: it is heard, and soon over. */
const FAR = 1;
const FASTEST_WHEN_FAR = 1.3;
/** How much rate a second of excess is worth. */
const GAIN = 0.2;
/** Media that are so much too far behind are jumped over, in seconds: to hurry past them would take too long. */
const TOO_FAR = 6;

/** Where catching up begins and how far it goes on, in seconds too far behind: no to and fro around one value. */
export interface Band {
  begin: number;
  end: number;
}

/** For parts, and for whole segments, whose distance from live is seldom known better. */
export const LOW_LATENCY: Band = { begin: 0.15, end: 0.03 };
export const WHOLE_SEGMENTS: Band = { begin: 0.9, end: 0.3 };

/**
 * The playback rate that brings a viewer to the distance from live the server asks for (PART-HOLD-BACK).
 *
 * hls.js speeds up only while more than a second is buffered, and a server of short parts asks for less than
 * that. Here the measure is what was never used: the least that was buffered during the last seconds. A viewer
 * 4 to 6 s too far behind is within a second of the wanted distance in less than 20 s.
 * Times are arguments, in milliseconds on one clock.
 */
export class Pace {
  private samples: { at: number; buffer: number }[] = [];
  private since: number | null = null;
  private catchingUp = false;
  private last = 0;

  constructor(private readonly band: Band = LOW_LATENCY) {}

  /** Forgets the past: after a jump, a pause or a stall it proves nothing. */
  reset(): void {
    this.samples = [];
    this.since = null;
    this.catchingUp = false;
    this.last = 0;
  }

  /** The rate for now. `latency`, `target` and `buffer` in seconds; call it a few times a second. */
  rate(now: number, latency: number, target: number, buffer: number): number {
    this.since ??= now;
    this.samples.push({ at: now, buffer });
    this.samples = this.samples.filter(({ at }) => at > now - MEMORY);
    const spare = Math.min(...this.samples.map((sample) => sample.buffer)) - RESERVE;
    const excess = Math.min(latency - target, spare);
    this.last = 0;
    // One second is the shortest past that shows how unevenly the parts come.
    if (now - this.since < 1_000) return 1;
    this.last = excess;
    if (excess > this.band.begin) this.catchingUp = true;
    else if (excess < this.band.end) this.catchingUp = false;
    if (!this.catchingUp) return 1;
    const fastest = excess > FAR ? FASTEST_WHEN_FAR : FASTEST;
    return Math.min(fastest, 1 + Math.max(0.01, Math.round(excess * GAIN * 100) / 100));
  }

  /** Whether the way to live is too far to be caught up with, as of the last rate; all of it is buffered. */
  isTooFar(): boolean {
    return this.last > TOO_FAR;
  }
}
