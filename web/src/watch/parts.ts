/** Parts that must have come before their times tell anything. */
const LEAST_PARTS = 16;
/** Weight of the newest part in the average. */
const WEIGHT = 1 / 16;
/** Waits for media within `WITHIN` milliseconds that make a player leave. One may have another cause. */
const WAITS = 2;
const WITHIN = 20_000;

/**
 * Tells a player of LL-HLS that it cannot keep up. hls.js asks for a part when the one before it has
 * come. So each part takes a round trip, and where that is longer than a part lasts, the player waits
 * again and again, however fast the network is. Times are arguments, in milliseconds on one clock.
 */
export class PartTimes {
  private parts = 0;
  private average = 0;
  private waits: number[] = [];

  /** How long a part takes to come, by how long it lasts. */
  get share(): number {
    return this.average;
  }

  /** Notes that a part has come: how long that took, and how long the part lasts. */
  arrived(took: number, lasts: number): void {
    if (lasts <= 0) return;
    this.parts += 1;
    this.average += (took / lasts - this.average) * Math.max(WEIGHT, 1 / this.parts);
  }

  /** Notes that playback waits for media. Returns whether the player should leave LL-HLS. */
  waiting(now: number): boolean {
    this.waits = [...this.waits.filter((at) => at > now - WITHIN), now];
    return this.waits.length >= WAITS && this.parts >= LEAST_PARTS && this.average > 1;
  }
}
