/** Media kept back whatever the distance from live, in seconds: what a hiccup of the network may cost. */
const RESERVE = 0.45;
/** How long the least buffer of the past counts as proof of what can be spared, in milliseconds. */
const MEMORY = 5_000;
/** Catching up begins at this excess and goes on down to the other, in seconds: no to and fro around one value. */
const BEGIN = 0.15;
const END = 0.03;
/** Fastest playback. Speech at a tenth above its speed still sounds like itself. */
const FASTEST = 1.1;

/**
 * The playback rate that brings a viewer to the distance from live the server asks for (PART-HOLD-BACK).
 *
 * hls.js speeds up only while more than a second is buffered, and a server of short parts asks for less than
 * that. Here the measure is what was never used: the least that was buffered during the last seconds.
 * Times are arguments, in milliseconds on one clock.
 */
export class Pace {
  private samples: { at: number; buffer: number }[] = [];
  private since: number | null = null;
  private catchingUp = false;

  /** Forgets the past: after a jump, a pause or a stall it proves nothing. */
  reset(): void {
    this.samples = [];
    this.since = null;
    this.catchingUp = false;
  }

  /** The rate for now. `latency`, `target` and `buffer` in seconds; call it a few times a second. */
  rate(now: number, latency: number, target: number, buffer: number): number {
    this.since ??= now;
    this.samples.push({ at: now, buffer });
    this.samples = this.samples.filter(({ at }) => at > now - MEMORY);
    const spare = Math.min(...this.samples.map((sample) => sample.buffer)) - RESERVE;
    const excess = Math.min(latency - target, spare);
    // One second is the shortest past that shows how unevenly the parts come.
    if (now - this.since < 1_000) return 1;
    if (excess > BEGIN) this.catchingUp = true;
    else if (excess < END) this.catchingUp = false;
    if (!this.catchingUp) return 1;
    return Math.min(FASTEST, 1 + Math.max(0.01, Math.round(excess * 15) / 100));
  }
}
