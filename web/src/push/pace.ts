/** Slowest and fastest playback: no ear tells these from normal speed. */
export const SLOWEST = 0.97;
export const FASTEST = 1.05;
const STEP = 0.01;

/** How long the least that was buffered counts, in milliseconds. */
const MEMORY = 2_000;
/** Catching up begins at the first excess and goes on down to the second, in seconds. */
const BEGIN = 0.04;
const END = 0.01;
/** How much rate a second of excess is worth. */
const GAIN = 0.3;
/** What a stall adds to the reserve, in seconds, and the time in which two thirds of it are given back, in milliseconds. */
const LESSON = 0.1;
const FORGETTING = 60_000;
/**
 * Media that are so much more than the reserve are not caught up with: they are jumped over, in seconds. Sooner where
 * the picture has just begun: what a slow start cost would take long to catch up with.
 */
const TOO_FAR = 1;
const TOO_FAR_AT_FIRST = 0.4;
/** How long the past has to be before it shows how unevenly media come, in milliseconds. */
const KNOWN_AFTER = 500;

/**
 * Keeps a viewer close to live: by the rate of playback, and by a jump where that would take too long.
 *
 * What is steered is the *reserve*, the least that is buffered, measured where it is least: just before
 * something is added. So the distance from live comes to be the reserve, the length of a chunk, and how
 * unevenly chunks come. A stall makes the reserve larger, time makes it smaller again. No clock is needed.
 * Times are arguments, in milliseconds on one clock.
 */
export class Pace {
  private samples: { at: number; level: number }[] = [];
  private since: number | null = null;
  private catchingUp = false;
  private learned = 0;
  private learnedAt = 0;

  /** `least` and `most` are bounds of the reserve, in seconds. It is never less than `least`. */
  constructor(
    private least: number,
    private readonly most: number,
  ) {}

  /** Changes the lesser bound. */
  atLeast(seconds: number): void {
    this.least = seconds;
  }

  /** Forgets what was measured: after a jump or a pause it proves nothing. */
  reset(): void {
    this.samples = [];
    this.since = null;
    this.catchingUp = false;
  }

  /** Playback ran out of media. */
  stalled(now: number): void {
    this.learned = Math.max(0, Math.min(this.most - this.least, this.extra(now) + LESSON));
    this.learnedAt = now;
    this.reset();
  }

  /** So many seconds were in front of the picture just before something was added to them. */
  measured(now: number, level: number): void {
    this.since ??= now;
    this.samples.push({ at: now, level });
    this.samples = this.samples.filter(({ at }) => at > now - MEMORY);
  }

  /** The least that should be buffered, in seconds. */
  reserve(now: number): number {
    return Math.max(this.least, Math.min(this.most, this.least + this.extra(now)));
  }

  /** How much more than the reserve is buffered, in seconds; null while that is not known. */
  excess(now: number): number | null {
    if (this.since === null || now - this.since < KNOWN_AFTER || this.samples.length === 0) return null;
    return Math.min(...this.samples.map(({ level }) => level)) - this.reserve(now);
  }

  /** Whether the way to live is too far to be caught up with. */
  isTooFar(now: number): boolean {
    return (this.excess(now) ?? 0) > TOO_FAR;
  }

  /** Whether it is so for a picture that has just begun, where so much was to be the reserve. */
  beganTooFar(now: number, reserve: number): boolean {
    const excess = this.excess(now);
    return excess !== null && excess + this.reserve(now) - reserve > TOO_FAR_AT_FIRST;
  }

  /** The rate for now. */
  rate(now: number): number {
    const excess = this.excess(now);
    if (excess === null) return 1;
    if (excess > BEGIN) this.catchingUp = true;
    else if (excess < END) this.catchingUp = false;
    if (!this.catchingUp && excess > -END) return 1;
    const steps = Math.round((excess * GAIN) / STEP);
    // What was begun goes on, by the smallest step at least.
    const rate = 1 + STEP * (excess > 0 ? Math.max(1, steps) : Math.min(-1, steps));
    return Math.min(FASTEST, Math.max(SLOWEST, Number(rate.toFixed(2))));
  }

  private extra(now: number): number {
    return this.learned * Math.exp(-(now - this.learnedAt) / FORGETTING);
  }
}
