/** A playhead that has not moved for this time stands still, in milliseconds. */
const STANDS_AFTER = 250;
/** A request older than this does not count any more, in milliseconds. */
const LOST_AFTER = 1_500;
/** Least time between two pushes, in milliseconds. */
const BETWEEN = 1_000;
/** Media count as newer if they are later by this much, in seconds: times are rounded. */
const NEWER = 0.05;

/**
 * A clock that counts only time in which the page runs, in milliseconds. The page calls `tick`
 * regularly. If a tick is late, something else held the page, and only `most` of that time counts.
 * (Browsers run timers of hidden, silent tabs once a second, so the clock is slower there.)
 */
export class PageClock {
  /** The time at the last tick. */
  now = 0;

  constructor(
    private at: number,
    private readonly most: number,
  ) {}

  /** Returns the time at `at`, which is a time on another clock. */
  tick(at: number): number {
    this.now += Math.min(at - this.at, this.most);
    this.at = at;
    return this.now;
  }
}

/** The state of a player. Media times are in seconds. */
export interface Look {
  time: number;
  /** Whether playback should run: it is not paused, seeking or over. */
  wanted: boolean;
  /** Whether the element seeks to a time without media. */
  seeking: boolean;
  /** End of the media that can be played without a hole. */
  bufferedTo: number;
  /** Start of the next playable media, if there are none at the playhead. */
  nextFrom: number | null;
  /** End of the media in the playlists, for the track with the least. */
  listedTo: number;
}

/**
 * Notices a player that stands still although newer media are there, or are in its playlists and
 * not requested.
 *
 * hls.js 1.7.4 can get into both states: see docs/player.md, "Where hls.js stands still". Times are
 * arguments, in milliseconds on one clock.
 */
export class Standstill {
  private time = -1;
  private since = 0;
  private pushedAt = Number.NEGATIVE_INFINITY;
  private readonly asked = new Map<string, { at: number; from: number }>();
  /** How long to wait for an answer, in milliseconds, for tracks whose request was repeated. */
  private readonly patience = new Map<string, number>();

  /** Notes that a track's media from `from` on, in seconds, were requested. */
  asks(track: string, now: number, from: number): void {
    this.asked.set(track, { at: now, from });
  }

  /** Notes that the requested media have arrived. */
  arrived(track: string): void {
    this.answered(track);
    this.patience.delete(track);
  }

  /** Notes that the requested media have arrived, or will not arrive. */
  answered(track: string): void {
    this.asked.delete(track);
  }

  /**
   * Where to move the playhead so that the player goes on, in seconds; null while there is nothing
   * to do.
   */
  look(now: number, { time, wanted, seeking, bufferedTo, nextFrom, listedTo }: Look): number | null {
    if (time !== this.time || !(wanted || seeking)) {
      this.time = time;
      this.since = now;
      return null;
    }
    if (now - this.since < STANDS_AFTER || now - this.pushedAt < BETWEEN) return null;
    // The media are on their way: the network is slow, and the player is not at fault.
    const awaited = (until: number) =>
      [...this.asked.values()].some(({ at, from }) => from < until && now - at < LOST_AFTER);
    if (nextFrom !== null) return awaited(nextFrom) ? null : this.push(now, nextFrom);
    if (seeking || listedTo < bufferedTo + NEWER || awaited(Number.POSITIVE_INFINITY)) return null;
    return this.push(now, bufferedTo);
  }

  /**
   * Whether the playhead stands still although each track has all its media. `tracks` has two times
   * for each, in seconds: the end of its buffer, and the end of its playlist.
   */
  hasAll(now: number, { time, wanted }: Look, tracks: { bufferedTo: number; listedTo: number }[]): boolean {
    const stands = wanted && time === this.time && now - this.since >= STANDS_AFTER;
    return stands && tracks.every(({ bufferedTo, listedTo }) => listedTo < bufferedTo + NEWER);
  }

  /**
   * Tracks whose request must be repeated, because the playhead stands still and the answer does not
   * come. Each repetition doubles the time to wait until media arrive: the network may be slow. Call
   * this before `look`: the repeated request gets time before the playhead is moved.
   */
  lost(now: number): string[] {
    if (now - this.since < STANDS_AFTER) return [];
    const patience = (track: string) => this.patience.get(track) ?? LOST_AFTER;
    const lost = [...this.asked]
      .filter(([track, { at }]) => now - at >= patience(track))
      .map(([track]) => track);
    for (const track of lost) this.patience.set(track, 2 * patience(track));
    if (lost.length > 0) this.pushedAt = now;
    return lost;
  }

  private push(now: number, beyond: number): number {
    this.pushedAt = now;
    return beyond + NEWER;
  }
}
