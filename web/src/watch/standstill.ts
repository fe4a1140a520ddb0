/** A picture that has not moved for so long stands still, in milliseconds. */
const STANDS_AFTER = 250;
/** What was asked for so long ago does not count any more, in milliseconds. */
const LOST_AFTER = 2_000;
/** After a push, so long until the next, in milliseconds. */
const BETWEEN = 1_000;
/** Newer media are those that are so much later, in seconds: times are rounded. */
const NEWER = 0.05;

/** What of a player is looked at; times of media in seconds. */
export interface Look {
  time: number;
  /** Playback is meant to run: neither paused, nor seeking, nor over. */
  wanted: boolean;
  /** The element looks for media at its time, and does not find any. */
  seeking: boolean;
  /** Where what can be played without a hole ends. */
  bufferedTo: number;
  /** Where the next media begin that can be played, if there are none at the picture's time. */
  nextFrom: number | null;
  /** Until when the playlists name media, of the track that is shortest. */
  listedTo: number;
}

/**
 * Notices a player that stands still though newer media are there, or are named by its playlists and not asked for.
 *
 * hls.js 1.7.4 can come to both: see docs/player.md, "Where hls.js stands still". Times are arguments, in milliseconds
 * on one clock.
 */
export class Standstill {
  private time = -1;
  private since = 0;
  private pushedAt = Number.NEGATIVE_INFINITY;
  private readonly asked = new Map<string, { at: number; from: number }>();

  /** A track's media were asked for, which begin at `from`, in seconds. */
  asks(track: string, now: number, from: number): void {
    this.asked.set(track, { at: now, from });
  }

  /** What was asked for has come, or will not. */
  answered(track: string): void {
    this.asked.delete(track);
  }

  /** Where to put the picture so that the player goes on, or null while there is nothing to do. In seconds. */
  look(now: number, { time, wanted, seeking, bufferedTo, nextFrom, listedTo }: Look): number | null {
    if (time !== this.time || !(wanted || seeking)) {
      this.time = time;
      this.since = now;
      return null;
    }
    if (now - this.since < STANDS_AFTER || now - this.pushedAt < BETWEEN) return null;
    // It is on its way: the network is slow, and the player is not at fault.
    const awaited = (until: number) =>
      [...this.asked.values()].some(({ at, from }) => from < until && now - at < LOST_AFTER);
    if (nextFrom !== null) return awaited(nextFrom) ? null : this.push(now, nextFrom);
    if (seeking || listedTo < bufferedTo + NEWER || awaited(Number.POSITIVE_INFINITY)) return null;
    return this.push(now, bufferedTo);
  }

  private push(now: number, beyond: number): number {
    this.pushedAt = now;
    return beyond + NEWER;
  }
}
