/** One time playback stood still though the viewer wanted it to run. Milliseconds of `performance.now()`. */
export interface Stall {
  at: number;
  /** Length so far, in seconds. */
  seconds: number;
}

/** The longest list of stalls kept one by one; count and total go on beyond it. */
const KEPT = 100;

/**
 * Accounts for stalls after the first frame. What the viewer asked for is none: pausing, seeking, the
 * time before the first frame, the end. Times are milliseconds on one clock and are arguments.
 */
export class StallMeter {
  private began = false;
  private openSince: number | null = null;
  private closedSeconds = 0;
  private closedCount = 0;
  private readonly closed: Stall[] = [];

  /** The first frame is on the screen: from now on a wait counts. */
  firstFrame(): void {
    this.began = true;
  }

  /** Playback has run out of media. `seeking`: because the viewer jumped somewhere. */
  waiting(now: number, seeking: boolean): void {
    if (this.began && !seeking && this.openSince === null) this.openSince = now;
  }

  /** Playback runs again. */
  moving(now: number): void {
    this.close(now);
  }

  /** The viewer paused or jumped, or the stream is over: what was open ends here. */
  interrupted(now: number): void {
    this.close(now);
  }

  /** The viewer chose another delivery, which starts from nothing; what was counted stays counted. */
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
