/**
 * A time in which playback stood still although the viewer wanted it to run. In milliseconds of
 * `performance.now()`.
 */
export interface Stall {
  at: number;
  /** Length so far, in seconds. */
  seconds: number;
}

/** Most stalls that are kept one by one. Number and total length have no limit. */
const KEPT = 100;

/**
 * Counts stalls after the first frame. Waits that the viewer caused do not count: pauses, seeks,
 * the time before the first frame, the end. Times are arguments, in milliseconds on one clock.
 */
export class StallMeter {
  private began = false;
  private openSince: number | null = null;
  private closedSeconds = 0;
  private closedCount = 0;
  private readonly closed: Stall[] = [];

  /** Notes the first frame on the screen: from now on, waits count. */
  firstFrame(): void {
    this.began = true;
  }

  /** Notes that playback ran out of media. `seeking`: because the viewer jumped. */
  waiting(now: number, seeking: boolean): void {
    if (this.began && !seeking && this.openSince === null) this.openSince = now;
  }

  /** Notes that playback runs again. */
  moving(now: number): void {
    this.close(now);
  }

  /** Ends an open stall: the viewer paused or jumped, or the stream is over. */
  interrupted(now: number): void {
    this.close(now);
  }

  /**
   * Notes that the viewer chose another delivery, which starts from nothing. Counted stalls stay
   * counted.
   */
  restart(now: number): void {
    this.close(now);
    this.began = false;
  }

  count(): number {
    return this.closedCount + (this.openSince === null ? 0 : 1);
  }

  /** Total length of all stalls up to `now`, in seconds. */
  seconds(now: number): number {
    return this.closedSeconds + this.openFor(now);
  }

  /** Whether playback stands still at this moment. */
  stalled(): boolean {
    return this.openSince !== null;
  }

  /** The first hundred stalls, one by one. */
  list(now: number): Stall[] {
    if (this.openSince === null || this.closed.length >= KEPT) return [...this.closed];
    return [...this.closed, { at: this.openSince, seconds: this.openFor(now) }];
  }

  private openFor(now: number): number {
    return this.openSince === null ? 0 : Math.max(0, now - this.openSince) / 1000;
  }

  private close(now: number): void {
    if (this.openSince === null) return;
    const stall = { at: this.openSince, seconds: this.openFor(now) };
    this.openSince = null;
    this.closedCount += 1;
    this.closedSeconds += stall.seconds;
    if (this.closed.length < KEPT) this.closed.push(stall);
  }
}
