import type { Order } from './feed';
import { pastGap, type Range, rangeAt, rangesOf } from './gaps';
import type { Pace } from './pace';
import type { Place } from './seeks';

/** A live viewer who pauses for longer is sent nothing until they go on, in milliseconds. */
const PAUSED_LONG = 10_000;
/** A file is buffered so far ahead at most, and sent again when so much is left, in seconds. */
const AHEAD = { most: 60, least: 30 };
/** The feed is told of the picture's place when it is so far from where it was, in seconds. */
const TOLD_EVERY = 0.25;
/** Less than enough to go on is begun with after so long, in milliseconds. */
const PATIENCE = 1_000;
/** A place so far behind all there is belongs to another stream, in seconds. */
const ELSEWHERE = 15;
/** Times are the same in spite of being rounded, in seconds. */
const ROUNDING = 0.01;
/** The picture stands still with media in front of it for so long: it is pushed, in milliseconds. */
const STUCK_AFTER = 1_000;

/** What of a video element is looked at and steered. */
export type Picture = Pick<
  HTMLVideoElement,
  'buffered' | 'currentTime' | 'ended' | 'paused' | 'playbackRate' | 'seeking'
>;

/**
 * Where the picture is in what is buffered: puts it where it is to begin, keeps it close to live, follows the viewer
 * elsewhere, and says what the server is to send for that.
 */
export class Steer {
  readonly count = { stalls: 0, jumps: 0 };
  /** The picture has its place in what is buffered. */
  placed = false;
  /** Stays at the live edge, and goes there after a pause. */
  following: boolean;
  /** Something has been played. */
  began = false;
  /** This is a file. */
  private recorded = false;
  /** Since when there have been media, where the picture has no place among them yet. */
  private arrivedAt: number | null = null;
  /** How long a chunk lasts, in seconds. */
  private chunk = 0;
  /** What is being waited for is in front of this time, in seconds. */
  private awaited: number | null = null;
  /** Where the picture was put by us and not by the viewer, until it is there. Seconds. */
  private ours: number | null = null;
  private pausedAt: number | null = null;
  private serverPaused = false;
  /** How many seeks the feed was told of: what comes after fewer is not what is waited for. */
  private seeks = 0;
  /** Where what is buffered ended when it was last looked at, and which place the feed knows of. Seconds. */
  private end = 0;
  private told = 0;
  /** The reserve with which the picture began, until it is known how far from live that is. Seconds. */
  private first: number | null = null;
  private still = { time: -1, at: 0 };

  constructor(
    private readonly video: Picture,
    private readonly pace: Pace,
    private from: Place | 'start',
    private readonly order: (order: Order) => void,
  ) {
    this.following = from === 'live';
  }

  /** The server answered: it has a file, or a broadcast. */
  opened(recorded: boolean): void {
    this.recorded = recorded;
    this.serverPaused = false;
    if (recorded) this.following = false;
  }

  /** Media came that last `chunk` seconds each; `first` where there were none, after so many seeks. */
  arrived(first: boolean, seeks: number, chunk: number): void {
    this.chunk = chunk;
    if (first && seeks === this.seeks) {
      this.arrivedAt = performance.now();
      this.placed = false;
    }
    this.look();
  }

  /** Everything comes anew, into an empty buffer. Answers from where on. */
  restart(): Place | 'start' {
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

  /** Looks at the picture and what is in front of it, and does what is to be done. */
  look(): void {
    const { video, pace } = this;
    const now = performance.now();
    if (!this.placed) this.place(now);
    if (!this.placed) return;
    if (Math.abs(video.currentTime - this.told) > TOLD_EVERY) this.tellPlace();
    const ranges = rangesOf(video.buffered);
    // Where live is, though there be a hole on the way; and where it was just before the newest came.
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

  /** The picture ran out of media, or waits for those of another place. */
  waiting(): void {
    const { video } = this;
    if (this.began && this.placed && !video.seeking && !video.paused) {
      this.count.stalls += 1;
      this.pace.stalled(performance.now());
    }
    this.look();
  }

  /** A pause begins. */
  paused(): void {
    this.pausedAt = performance.now();
    this.pace.reset();
  }

  /** A pause is over. */
  resume(): void {
    this.pausedAt = null;
    this.pace.reset();
    if (this.recorded) return;
    if (this.serverPaused) {
      this.goOn();
      // What was missed meanwhile, as far as the server still has it.
      if (!this.following) this.ask(this.video.currentTime);
    } else if (this.following && this.placed && this.ahead() > 1) {
      this.jumpToLive();
    }
  }

  /** Goes to `time`, as the viewer wants. */
  seek(time: number): void {
    this.leaveLive();
    this.video.currentTime = time;
    // Before there are media the element only keeps it for later.
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
      // What comes is of the place that was sought before.
      this.ask('live');
    }
  }

  leaveLive(): void {
    if (this.following) this.video.playbackRate = 1;
    this.following = false;
  }

  /** The picture is being put elsewhere, by us or by the viewer: asks for what is not buffered. */
  sought(): void {
    const { currentTime, buffered } = this.video;
    this.pace.reset();
    this.tellPlace();
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

  /** The picture is where it was put. */
  settled(): void {
    this.ours = null;
  }

  /** Seconds of media in front of the picture. */
  ahead(): number {
    const { buffered, currentTime } = this.video;
    const range = rangeAt(rangesOf(buffered), currentTime);
    return range ? range.end - currentTime : 0;
  }

  /** Puts the picture where it is to begin, once there is enough for it to go on. */
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
      // The server begins at the keyframe before, and what is between is still to come.
      this.awaited = Math.max(range.start, wanted);
      if (!isSame(video.currentTime, this.awaited)) this.move(this.awaited);
    }
  }

  /** Where live is to be watched: a chunk has to last until the next, and the reserve beyond. */
  private live({ end }: Range, now: number): number {
    return end - this.chunk - this.pace.reserve(now);
  }

  /** Has the server stop while nothing of it is needed. Answers whether the picture is paused. */
  private hold(now: number): boolean {
    const { paused } = this.video;
    const ahead = this.ahead();
    // One who never played has paused, too, and there was no event.
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

  /** Has the server go on if it was told to stop. */
  private goOn(): void {
    if (!this.serverPaused) return;
    this.serverPaused = false;
    this.order({ do: 'pause', paused: false });
  }

  /** Pushes a picture that stands still though there is more: some decoders wait where they need not. */
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
    // Back only from where nothing is.
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

  /** Has the server go on at `place`, where the picture is, or will be. */
  private ask(place: Place): void {
    // It stays paused where it goes. Who paused may want to see the picture there.
    this.goOn();
    this.pausedAt = null;
    this.placed = false;
    this.arrivedAt = null;
    const to = place === 'live' ? place : Math.max(0, place);
    this.from = to;
    this.awaited = to === 'live' ? null : to;
    // Where the viewer put it a moment ago does not count any more.
    if (to === 'live') this.ours = this.video.currentTime;
    this.seeks += 1;
    this.order({ do: 'seek', to });
  }

  private tellPlace(): void {
    this.told = this.video.currentTime;
    this.order({ do: 'at', time: this.told });
  }
}

function isSame(time: number, other: number | null): boolean {
  return other !== null && Math.abs(time - other) < ROUNDING;
}
