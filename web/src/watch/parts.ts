/** How many of the newest parts count: those of audio and video in a few seconds. */
const NEWEST = 40;
/**
 * A player cannot keep up if so many of them took longer than they last. A busy machine gets some parts
 * late, and others at once.
 */
const LATE = 30;
/** Waits for media within `WITHIN` milliseconds that make a player leave. One may have another cause. */
const WAITS = 3;
const WITHIN = 30_000;

/**
 * Tells a player of LL-HLS that it cannot keep up. hls.js asks for a part when the one before it has
 * come. So each part takes a round trip, and where that is longer than a part lasts, the player waits
 * again and again, however fast the network is. Times are arguments, in milliseconds on one clock.
 */
export class PartTimes {
  /** For each of the newest parts, whether it took longer than it lasts. */
  private newest: boolean[] = [];
  private waits: number[] = [];

  /** How many of the newest parts took longer than they last. */
  get late(): number {
    return this.newest.filter((isLate) => isLate).length;
  }

  /** Notes that a part has come: how long that took, and how long the part lasts. */
  arrived(took: number, lasts: number): void {
    this.newest = [...this.newest, took > lasts].slice(-NEWEST);
  }

  /** Notes that playback waits for media. Returns whether the player should leave LL-HLS. */
  waiting(now: number): boolean {
    this.waits = [...this.waits.filter((at) => at > now - WITHIN), now];
    return this.waits.length >= WAITS && this.late >= LATE;
  }
}
