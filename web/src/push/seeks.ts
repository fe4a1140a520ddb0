/** Where to go on: a time in seconds, or the newest keyframe of a broadcast. */
export type Position = 'live' | number;

/**
 * Least time between two seeks that the server is told of, in milliseconds. The server closes a
 * connection that sends more than ten messages a second, and a dragged slider seeks at each frame
 * of the screen.
 */
const EVERY = 200;

/**
 * The seeks of the viewer, and those that the server was told of. One seek is in progress at a
 * time. Of the seeks that come meanwhile only the newest is sent, after the answer. Times are
 * arguments, in milliseconds on one clock.
 */
export class Seeks {
  private wanted: Position | null = null;
  /** The seek last sent to the server, or used for the connection. */
  private told: Position | null = null;
  private toldAt = Number.NEGATIVE_INFINITY;
  /** Whether the server has yet to answer the last seek. */
  private underway = false;

  /** The newest seek, until its media arrive. */
  get position(): Position | null {
    return this.wanted;
  }

  /** Whether arriving media belong to a time before the newest seek. */
  get isAhead(): boolean {
    return this.underway || this.wanted !== this.told;
  }

  want(position: Position): void {
    this.wanted = position;
  }

  /**
   * In how many milliseconds to tell the server; null if there is nothing to tell, or an answer is
   * missing.
   */
  due(now: number): number | null {
    if (this.wanted === null || this.underway || this.wanted === this.told) return null;
    return Math.max(0, this.toldAt + EVERY - now);
  }

  /** Notes that the server is told now. Returns what to tell it. */
  tell(now: number): Position | null {
    this.underway = true;
    this.told = this.wanted;
    this.toldAt = now;
    return this.told;
  }

  /** Notes that a connection is opened. Returns the position to begin from, if there was a seek. */
  connect(): Position | null {
    this.underway = false;
    this.told = this.wanted;
    return this.told;
  }

  /** Notes that the server has gone to another position. Returns whether that is the newest one. */
  answered(): boolean {
    if (!this.underway) return false;
    this.underway = false;
    return this.wanted === this.told;
  }

  /** Notes that media of the wanted position have arrived. */
  arrived(): void {
    this.wanted = null;
    this.told = null;
  }
}
