/** Slowest and fastest playback. No ear tells these from normal speed. */
export const SLOWEST = 0.97;
export const FASTEST = 1.05;
const STEP = 0.01;

/** How long the least buffered amount counts, in milliseconds. */
const MEMORY = 2_000;
/**
 * Catching up begins when the excess is above the first and ends when it is below the second, in
 * seconds.
 */
const BEGIN = 0.04;
const END = 0.01;
/** Change of rate for each second of excess. */
const GAIN = 0.3;
/**
 * A stall adds this to the reserve, in seconds. Two thirds of it are given back in the second time,
 * in milliseconds.
 */
const LESSON = 0.1;
const FORGETTING = 60_000;
/**
 * If the excess over the reserve is larger than this, the video jumps ahead instead of catching
 * up, in seconds. The limit is lower for a video that has just begun: it would take long to catch
 * up after a slow start.
 */
const TOO_FAR = 1;
const TOO_FAR_AT_FIRST = 0.4;
/** How long to measure before it shows how unevenly media arrive, in milliseconds. */
const KNOWN_AFTER = 500;

/**
 * Keeps a viewer close to live, by the rate of playback, and by a jump if that would take too long.
 *
 * It controls the *reserve*: the least that is buffered, measured just before something is added.
 * So the distance from live becomes the reserve, plus the length of a chunk, plus the unevenness
 * with which chunks arrive. A stall makes the reserve larger; time makes it smaller again. No clock
 * is needed. Times are arguments, in milliseconds on one clock.
 */
export class Pace {
  private samples: { at: number; level: number }[] = [];
  private since: number | null = null;
  private catchingUp = false;
  private learned = 0;
  private learnedAt = 0;

  /** `least` and `most` are bounds of the reserve, in seconds. */
  constructor(
    private least: number,
    private readonly most: number,
  ) {}

  /** Changes the lower bound. */
  atLeast(seconds: number): void {
    this.least = seconds;
  }

  /** Forgets the measurements: after a jump or a pause they are void. */
  reset(): void {
    this.samples = [];
    this.since = null;
    this.catchingUp = false;
  }

  /** Notes that playback ran out of media. */
  stalled(now: number): void {
    this.learned = Math.max(0, Math.min(this.most - this.least, this.extra(now) + LESSON));
    this.learnedAt = now;
    this.reset();
  }

  /** Notes how many seconds of media were in front of the video's position just before more was added. */
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

  /** Whether live is too far ahead to catch up with. */
  isTooFar(now: number): boolean {
    return (this.excess(now) ?? 0) > TOO_FAR;
  }

  /** The same for a video that has just begun. `reserve` is the reserve with which it began. */
  beganTooFar(now: number, reserve: number): boolean {
    const excess = this.excess(now);
    return excess !== null && excess + this.reserve(now) - reserve > TOO_FAR_AT_FIRST;
  }

  /** The present playback rate. */
  rate(now: number): number {
    const excess = this.excess(now);
    if (excess === null) return 1;
    if (excess > BEGIN) this.catchingUp = true;
    else if (excess < END) this.catchingUp = false;
    if (!this.catchingUp && excess > -END) return 1;
    const steps = Math.round((excess * GAIN) / STEP);
    // Once begun, catching up goes on, by the smallest step at least.
    const rate = 1 + STEP * (excess > 0 ? Math.max(1, steps) : Math.min(-1, steps));
    return Math.min(FASTEST, Math.max(SLOWEST, Number(rate.toFixed(2))));
  }

  private extra(now: number): number {
    return this.learned * Math.exp(-(now - this.learnedAt) / FORGETTING);
  }
}
