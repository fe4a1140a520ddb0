import type { Order } from './feed';
import { pastGap, type Range, rangeAt, rangesOf } from './gaps';
import type { Pace } from './pace';
import type { Position } from './seeks';

/**
 * A live viewer who pauses for longer gets nothing more until playback resumes, in milliseconds.
 */
const PAUSED_LONG = 10_000;
/**
 * A file is buffered this far ahead at most, and is requested again when this much is left, in
 * seconds.
 */
const AHEAD = { most: 60, least: 30 };
/** The feed is told of the video's position when it has moved by this, in seconds. */
const TOLD_EVERY = 0.25;
/** Playback begins after this time even with less than enough media, in milliseconds. */
const PATIENCE = 1_000;
/** A position so far behind all media belongs to another stream, in seconds. */
const ELSEWHERE = 15;
/** Times that differ by less are the same, in seconds: they are rounded. */
const ROUNDING = 0.01;
/** A video that stands still for this time with media in front of it is pushed, in milliseconds. */
const STUCK_AFTER = 1_000;

/** The members of a video element that are read and set here. */
export type VideoElement = Pick<
  HTMLVideoElement,
  'buffered' | 'currentTime' | 'ended' | 'paused' | 'playbackRate' | 'seeking'
>;

/**
 * Controls where the video is in the buffered media. It sets the first position, keeps the video
 * close to live, follows the viewer to other positions, and orders the media for that from the
 * server.
 */
export class Steer {
  readonly count = { stalls: 0, jumps: 0 };
  /** Whether the video has a position in the buffered media. */
  placed = false;
  /** Whether it stays at the live edge, and goes there after a pause. */
  following: boolean;
  /** Whether anything has been played. */
  began = false;
  /** Whether this is a file. */
  private recorded = false;
  /** Since when there have been media, while the video has no position among them yet. */
  private arrivedAt: number | null = null;
  /** Duration of a chunk, in seconds. */
  private chunk = 0;
  /** The awaited media begin before this time, in seconds. */
  private awaited: number | null = null;
  /** Where this class, and not the viewer, moved the video, until the video is there. Seconds. */
  private ours: number | null = null;
  private pausedAt: number | null = null;
  private serverPaused = false;
  /**
   * How many seeks the feed was told of. Media that come after fewer seeks are not the awaited
   * ones.
   */
  private seeks = 0;
  /** Where the buffer ended at the last look, and the position that the feed knows. Seconds. */
  private end = 0;
  private told = 0;
  /** The reserve with which the video began, until its distance from live is known. Seconds. */
  private first: number | null = null;
  private still = { time: -1, at: 0 };

  constructor(
    private readonly video: VideoElement,
    private readonly pace: Pace,
    private from: Position | 'start',
    private readonly order: (order: Order) => void,
  ) {
    this.following = from === 'live';
  }

  /** Notes that the server has answered, with a file or a broadcast. */
  opened(recorded: boolean): void {
    this.recorded = recorded;
    this.serverPaused = false;
    if (recorded) this.following = false;
  }

  /**
   * Notes new media in chunks of `chunk` seconds. `first`: the buffer was empty. `seeks`: how many
   * seeks came before.
   */
  arrived(first: boolean, seeks: number, chunk: number): void {
    this.chunk = chunk;
    if (first && seeks === this.seeks) {
      this.arrivedAt = performance.now();
      this.placed = false;
    }
    this.look();
  }

  /** Everything comes anew into an empty buffer. Returns the position to begin from. */
  restart(): Position | 'start' {
    if (this.following) this.from = 'live';
    else if (this.placed) this.from = this.video.currentTime;
    this.placed = false;
    this.arrivedAt = null;
    this.awaited = null;
    this.ours = null;
    this.seeks = 0;
    this.pace.reset();
    return this.from;
  }

  /** Looks at the video and the media in front of it, and acts. */
  look(): void {
    const { video, pace } = this;
    const now = performance.now();
    if (!this.placed) this.place(now);
    if (!this.placed) return;
    if (Math.abs(video.currentTime - this.told) > TOLD_EVERY) this.tellPosition();
    const ranges = rangesOf(video.buffered);
    // The end is the live edge, even with a hole before it. `before` is its value just before the
    // newest media came.
    const before = this.end;
    this.end = ranges.at(-1)?.end ?? before;
    if (rangeAt(ranges, video.currentTime)) this.awaited = null;
    if (this.hold(now) || video.seeking || video.ended) return;
    const gap = pastGap(ranges, video.currentTime);
    if (gap !== null) {
      this.count.jumps += 1;
      this.move(gap);
      return;
    }
    this.push(now, rangeAt(ranges, video.currentTime)?.end ?? 0);
    if (!this.following) return;
    if (before < this.end) pace.measured(now, before - video.currentTime);
    const beganTooFar = this.first !== null && pace.beganTooFar(now, this.first);
    if (pace.excess(now) !== null) this.first = null;
    if (beganTooFar || pace.isTooFar(now)) this.jumpToLive();
    const rate = pace.rate(now);
    if (video.playbackRate !== rate) video.playbackRate = rate;
  }

  /** Notes that the video ran out of media, or waits for media at another position. */
  waiting(): void {
    const { video } = this;
    if (this.began && this.placed && !video.seeking && !video.paused) {
      this.count.stalls += 1;
      this.pace.stalled(performance.now());
    }
    this.look();
  }

  /** Notes that a pause begins. */
  paused(): void {
    this.pausedAt = performance.now();
    this.pace.reset();
  }

  /** Notes that a pause is over. */
  resume(): void {
    this.pausedAt = null;
    this.pace.reset();
    if (this.recorded) return;
    if (this.serverPaused) {
      this.goOn();
      // Asks for the media missed during the pause, as far as the server still has them.
      if (!this.following) this.ask(this.video.currentTime);
    } else if (this.following && this.placed && this.ahead() > 1) {
      this.jumpToLive();
    }
  }

  /** Goes to `time` for the viewer. */
  seek(time: number): void {
    this.leaveLive();
    this.video.currentTime = time;
    // Before there are media, the element only stores the position.
    if (!this.placed) this.ask(time);
  }

  goLive(): void {
    if (this.recorded) return;
    this.following = true;
    this.resume();
    if (this.placed) {
      this.awaited = null;
      this.jumpToLive();
    } else if (this.from !== 'live') {
      // The media on their way belong to the position sought before.
      this.ask('live');
    }
  }

  leaveLive(): void {
    if (this.following) this.video.playbackRate = 1;
    this.following = false;
  }

  /** The video moves, by our order or the viewer's. Asks for media that are not buffered. */
  sought(): void {
    const { currentTime, buffered } = this.video;
    this.pace.reset();
    this.tellPosition();
    if (isSame(currentTime, this.ours) || isSame(currentTime, this.awaited)) return;
    const ranges = rangesOf(buffered);
    const last = ranges.at(-1);
    if (!this.recorded && this.placed && last && currentTime > this.live(last, performance.now())) {
      this.goLive();
      return;
    }
    this.leaveLive();
    if (!this.placed || !rangeAt(ranges, currentTime)) this.ask(currentTime);
  }

  /** Notes that the video has reached its position. */
  settled(): void {
    this.ours = null;
  }

  /** Seconds of media in front of the video's position. */
  ahead(): number {
    const { buffered, currentTime } = this.video;
    const range = rangeAt(rangesOf(buffered), currentTime);
    return range ? range.end - currentTime : 0;
  }

  /** Sets the video's first position, once there are enough media to play on. */
  private place(now: number): void {
    const { video, from } = this;
    const range = rangesOf(video.buffered).at(-1);
    if (!range || this.arrivedAt === null) return;
    const wanted = typeof from === 'number' ? from : range.start;
    if (!this.recorded && wanted > range.end + ELSEWHERE) this.following = true;
    const live = this.live(range, now);
    if (this.following && live < range.start && now - this.arrivedAt < PATIENCE) return;
    this.arrivedAt = null;
    this.placed = true;
    this.end = range.end;
    if (this.following) {
      this.awaited = null;
      this.first = this.pace.reserve(now);
      this.move(Math.max(range.start, live));
    } else {
      // The server begins at the keyframe before, and the media up to here are still to come.
      this.awaited = Math.max(range.start, wanted);
      if (!isSame(video.currentTime, this.awaited)) this.move(this.awaited);
    }
  }

  /** Where to watch live: a chunk must last until the next one, and the reserve comes on top. */
  private live({ end }: Range, now: number): number {
    return end - this.chunk - this.pace.reserve(now);
  }

  /** Stops the server while nothing is needed from it. Returns whether the video is paused. */
  private hold(now: number): boolean {
    const { paused } = this.video;
    const ahead = this.ahead();
    // A video that has never played is paused, too, and there was no event.
    if (paused) this.pausedAt ??= now;
    const stop = this.recorded
      ? ahead > AHEAD.most
      : paused && this.pausedAt !== null && now - this.pausedAt > PAUSED_LONG;
    if (stop && !this.serverPaused) {
      this.serverPaused = true;
      this.order({ do: 'pause', paused: true });
    } else if (this.recorded && ahead < AHEAD.least) {
      this.goOn();
    }
    return paused;
  }

  /** Makes the server go on, if it was told to stop. */
  private goOn(): void {
    if (!this.serverPaused) return;
    this.serverPaused = false;
    this.order({ do: 'pause', paused: false });
  }

  /**
   * Pushes a video that stands still although there are more media. Some decoders wait without
   * need.
   */
  private push(now: number, end: number): void {
    const { video, still } = this;
    if (video.currentTime !== still.time || end - video.currentTime < 0.3) {
      this.still = { time: video.currentTime, at: now };
    } else if (now - still.at > STUCK_AFTER) {
      this.count.jumps += 1;
      this.still = { time: -1, at: now };
      this.move(video.currentTime + 0.01);
    }
  }

  private jumpToLive(): void {
    const { currentTime, buffered } = this.video;
    const ranges = rangesOf(buffered);
    const range = ranges.at(-1);
    if (!range) return;
    const time = Math.max(range.start, this.live(range, performance.now()));
    // Goes back only from a position without media.
    if (time <= currentTime && rangeAt(ranges, currentTime)) return;
    this.count.jumps += 1;
    this.end = range.end;
    this.move(time);
  }

  private move(time: number): void {
    this.pace.reset();
    this.ours = time;
    this.video.currentTime = time;
  }

  /** Makes the server go on at `position`, where the video is or will be. */
  private ask(position: Position): void {
    // The video stays paused at the new position, but a viewer who paused may want to see it.
    this.goOn();
    this.pausedAt = null;
    this.placed = false;
    this.arrivedAt = null;
    const to = position === 'live' ? position : Math.max(0, position);
    this.from = to;
    this.awaited = to === 'live' ? null : to;
    // Where the viewer last put the video does not count any more.
    if (to === 'live') this.ours = this.video.currentTime;
    this.seeks += 1;
    this.order({ do: 'seek', to });
  }

  private tellPosition(): void {
    this.told = this.video.currentTime;
    this.order({ do: 'at', time: this.told });
  }
}

function isSame(time: number, other: number | null): boolean {
  return other !== null && Math.abs(time - other) < ROUNDING;
}
