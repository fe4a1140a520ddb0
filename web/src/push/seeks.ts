/** Where to go on: a time in seconds, or at a broadcast's newest keyframe. */
export type Place = 'live' | number;

/**
 * The server is told of a seek at most so often, in milliseconds. It closes the connection of whoever says more than
 * ten things a second, and a slider that is dragged seeks at each picture of the screen.
 */
const EVERY = 200;

/**
 * What was sought and what the server was told of it: one seek is on its way at a time, and of those that come
 * meanwhile only the newest is told, when that has been answered. Times are arguments, in milliseconds on one clock.
 */
export class Seeks {
  private wanted: Place | null = null;
  /** What the server was told last, or the connection was asked for with. */
  private told: Place | null = null;
  private toldAt = Number.NEGATIVE_INFINITY;
  /** It was told, and has not answered. */
  private underway = false;

  /** What was sought and of which nothing has come. */
  get place(): Place | null {
    return this.wanted;
  }

  /** Whether what comes belongs to before. */
  get isAhead(): boolean {
    return this.underway || this.wanted !== this.told;
  }

  want(place: Place): void {
    this.wanted = place;
  }

  /** In how many milliseconds the server is to be told; null while it need not be, or has yet to answer. */
  due(now: number): number | null {
    if (this.wanted === null || this.underway || this.wanted === this.told) return null;
    return Math.max(0, this.toldAt + EVERY - now);
  }

  /** The server is told now: of this. */
  tell(now: number): Place | null {
    this.underway = true;
    this.told = this.wanted;
    this.toldAt = now;
    return this.told;
  }

  /** A connection is asked for, where there was something sought from there on. */
  connect(): Place | null {
    this.underway = false;
    this.told = this.wanted;
    return this.told;
  }

  /** The server says that it has gone elsewhere. Answers whether that is where it is wanted. */
  answered(): boolean {
    if (!this.underway) return false;
    this.underway = false;
    return this.wanted === this.told;
  }

  /** Something came, of where it was wanted. */
  arrived(): void {
    this.wanted = null;
    this.told = null;
  }
}
