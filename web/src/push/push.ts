/**
 * A player of live streams and files that headwater pushes over a WebSocket. Documented in docs/player.md.
 *
 * Everything public is in this file, so that its declarations stand by themselves.
 */

import type { Hello } from './events';
import type { Order, Report, Traffic } from './feed';
import { pastGap, type Range, rangeAt, rangesOf } from './gaps';
import { Host, serve } from './host';
import { Pace } from './pace';
import { sourceClass } from './store';

export interface PushOptions {
  /**
   * Where to begin: at the newest keyframe (`live`, of a file at its beginning), at the oldest media there are
   * (`start`), or at a time in seconds. Default `live`.
   */
  from?: 'live' | 'start' | number;
  /** Only this rendition. By default the server chooses, by what the connection carries. */
  rendition?: string | null;
  /** No rendition of more than so many bit/s. */
  max?: number | null;
  /** Seconds that should be buffered at least while live, and at most after stalls. Default 0.1 and 2. */
  reserve?: { least?: number; most?: number };
  /** How long a lost server is looked for before that is an error, in seconds. Default 30. */
  patience?: number;
  /**
   * Whether connection and buffer live in a worker where the browser allows that; or the worker's address, which
   * is that of this module, where it was moved. Default true.
   */
  worker?: boolean | string | URL;
  /** The server's clock in milliseconds since 1970, which latency is told by. Default this machine's clock. */
  clock?: () => number;
}

export interface PushRendition {
  name: string;
  /** bit/s; 0 while the server has not seen enough to tell. */
  bitrate: number;
  /** As `1280x720`. */
  resolution: string | null;
  /** As in RFC 6381. */
  codecs: string;
}

export interface PushStats {
  /** Name of the rendition that comes now. */
  rendition: string | null;
  /** Its bit/s, without sound. */
  bitrate: number | null;
  /** Codecs of picture and sound, as in RFC 6381. */
  codecs: string | null;
  /** Seconds between the clock and the capture of what is on the screen. Null for files, and while unknown. */
  latency: number | null;
  /** What latency is being brought to, in seconds. */
  targetLatency: number | null;
  /** When what is on the screen was captured, in milliseconds since 1970. */
  shownAt: number | null;
  /** Seconds of media in front of the picture. */
  buffer: number;
  playbackRate: number;
  /** WebSocket messages received. */
  messages: number;
  /** Bytes of CMAF headers and chunks. */
  mediaBytes: number;
  /** All other bytes of the messages: their frames' heads, and the server's text. */
  overheadBytes: number;
  /** How often playback ran out of media, jumped over missing ones or ahead, and the connection was lost. */
  stalls: number;
  jumps: number;
  reconnects: number;
  /** Whether connection and buffer are in a worker. */
  worker: boolean;
}

export interface PushEvents {
  /** The server answered: what there is to be played. Again after each reconnection. */
  open: { renditions: PushRendition[]; rendition: string | null; duration: number | null };
  /** Another rendition comes from here on, or other codecs. */
  rendition: { name: string; codecs: string };
  /** Twice a second while live. */
  latency: { latency: number | null; target: number | null; playbackRate: number };
  /** Twice a second while media come. */
  stats: PushStats;
  /** The connection was lost; the next is tried after `delay` milliseconds. */
  reconnecting: { attempt: number; delay: number; reason: string };
  /** Everything was played, and nothing more comes. */
  end: undefined;
  /** It does not go on. `code` is `not-found`, `refused`, `network`, `codec` or `media`. */
  error: { code: string; message: string };
}

type Listener<K extends keyof PushEvents> = (event: PushEvents[K]) => void;

/** How often listeners are told figures, and how often the picture is looked at when nothing comes. Milliseconds. */
const FIGURES_EVERY = 500;
const LOOK_EVERY = 100;
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
/** The source is made anew at most so often, within a minute. */
const MOST_RENEWALS = 3;

export class PushPlayer {
  private readonly listeners = new Map<string, Set<Listener<keyof PushEvents>>>();
  private readonly wish: { url: string; from: 'live' | 'start' | number; patience: number } & {
    rendition: string | null;
    max: number | null;
  };
  private readonly pace: Pace;
  private readonly clock: () => number;
  private readonly timers: ReturnType<typeof setInterval>[] = [];
  private readonly aborted = new AbortController();
  private readonly host: Host;
  private address: string | null = null;
  private hello: Hello | null = null;
  private rendition: string | null = null;
  private mime = '';
  private traffic: Traffic = { messages: 0, media: 0, overhead: 0 };
  /** Bytes of feeds that were given up. */
  private before: Traffic = { messages: 0, media: 0, overhead: 0 };
  private epoch: number | null = null;
  /** The picture has its place in what is buffered. */
  private placed = false;
  /** Since when there have been media, where the picture has no place among them yet. */
  private arrivedAt: number | null = null;
  /** How long a chunk lasts, in seconds. */
  private chunk = 0;
  /** What is being waited for is in front of this time, in seconds. */
  private awaited: number | null = null;
  /** Stays at the live edge, and goes there after a pause. */
  private following: boolean;
  /** Something has been played. */
  private began = false;
  private connected = false;
  private pausedAt: number | null = null;
  private serverPaused = false;
  /** Where what is buffered ended when it was last looked at, and which place the feed knows of. Seconds. */
  private end = 0;
  private told = 0;
  private moved = { time: -1, at: 0 };
  private renewals: number[] = [];
  private readonly count = { stalls: 0, jumps: 0, reconnects: 0 };
  private over = false;

  /** Whether this browser can play pushed media. */
  static isSupported(): boolean {
    return sourceClass() !== undefined && typeof WebSocket !== 'undefined';
  }

  /**
   * Begins to load `url`, the address of a stream's push endpoint (`https://HOST/live/NAME/push`, or `wss:`), into
   * `video`. Playback begins as with any media element: by its attribute `autoplay`, or by `play()`.
   */
  constructor(
    readonly video: HTMLVideoElement,
    url: string | URL,
    options: PushOptions = {},
  ) {
    if (!PushPlayer.isSupported()) throw new Error('this browser has no Media Source Extensions');
    const address = new URL(url, document.baseURI);
    address.protocol = address.protocol.replace('http', 'ws');
    const { from = 'live', rendition = null, max = null, patience = 30, reserve = {} } = options;
    this.wish = { url: address.href, from, rendition, max, patience };
    this.pace = new Pace(reserve.least ?? 0.1, reserve.most ?? 2);
    this.clock = options.clock ?? Date.now;
    this.following = from === 'live';
    // Safari's ManagedMediaSource opens only where the picture cannot be sent to another device.
    video.disableRemotePlayback = true;
    this.listen();
    this.host = new Host(options.worker ?? true, (report) => this.hear(report));
    this.host.start({ do: 'open', wish: this.wish });
    this.timers.push(setInterval(() => this.tell(), FIGURES_EVERY));
    this.timers.push(setInterval(() => this.look(), LOOK_EVERY));
  }

  /** Calls `listener` at each event `name`. Returns the way to stop it. */
  on<K extends keyof PushEvents>(name: K, listener: Listener<K>): () => void {
    const listeners = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, listeners);
    listeners.add(listener as Listener<keyof PushEvents>);
    return () => listeners.delete(listener as Listener<keyof PushEvents>);
  }

  play(): Promise<void> {
    return this.video.play();
  }

  /** Pauses, and keeps the place: `play` goes on there as long as the server still has it, `goLive` does not. */
  pause(): void {
    this.leaveLive();
    this.video.pause();
  }

  /** Goes to `seconds` of the file, or of the stream's timeline. */
  seek(seconds: number): void {
    this.leaveLive();
    this.video.currentTime = seconds;
  }

  /** Goes to the live edge, and stays there. */
  goLive(): void {
    if (this.recorded) return;
    this.following = true;
    this.resume();
    this.jumpToLive();
  }

  /** Plays this rendition and no other; null lets the server choose again. */
  setRendition(name: string | null): void {
    this.wish.rendition = name;
    this.order({ do: 'rendition', name });
  }

  /** Plays no rendition of more than so many bit/s; null takes that back. */
  setMax(bitrate: number | null): void {
    this.wish.max = bitrate;
    this.order({ do: 'max', bitrate });
  }

  /** What there is to choose from, by falling bitrate. */
  get renditions(): readonly PushRendition[] {
    return this.hello?.renditions ?? [];
  }

  /** Seconds of a file; null of a broadcast. */
  get duration(): number | null {
    return this.hello?.duration ?? null;
  }

  stats(): PushStats {
    const { video, epoch, traffic, before } = this;
    const live = !this.recorded && this.placed;
    const shownAt = live && epoch !== null ? epoch + video.currentTime * 1000 : null;
    const latency = shownAt === null ? null : (this.clock() - shownAt) / 1000;
    const excess = this.pace.excess(performance.now());
    return {
      rendition: this.rendition,
      bitrate: this.renditions.find(({ name }) => name === this.rendition)?.bitrate || null,
      codecs: /codecs="(.*)"/.exec(this.mime)?.[1] ?? null,
      latency,
      targetLatency: latency === null || excess === null ? null : latency - excess,
      shownAt,
      buffer: this.ahead(),
      playbackRate: video.playbackRate,
      messages: before.messages + traffic.messages,
      mediaBytes: before.media + traffic.media,
      overheadBytes: before.overhead + traffic.overhead,
      ...this.count,
      worker: this.host.inWorker,
    };
  }

  /** Ends everything and leaves the video element empty. */
  destroy(): void {
    this.host.stop();
    this.aborted.abort();
    for (const timer of this.timers) clearInterval(timer);
    this.listeners.clear();
    this.detach();
    this.video.playbackRate = 1;
  }

  private get recorded(): boolean {
    return this.duration !== null;
  }

  private emit<K extends keyof PushEvents>(name: K, event: PushEvents[K]): void {
    for (const listener of this.listeners.get(name) ?? []) listener(event);
  }

  private listen(): void {
    const { video } = this;
    const { signal } = this.aborted;
    const on = (event: string, does: () => void) => video.addEventListener(event, does, { signal });
    on('seeking', () => this.sought());
    on('waiting', () => {
      if (this.began && this.placed && !video.seeking && !video.paused) {
        this.count.stalls += 1;
        this.pace.stalled(performance.now());
      }
      this.look();
    });
    on('playing', () => {
      this.began = true;
    });
    on('pause', () => {
      this.pausedAt = performance.now();
      this.pace.reset();
    });
    on('play', () => this.resume());
    on('timeupdate', () => this.look());
    on('ended', () => this.emit('end', undefined));
    on('error', () => {
      if (this.placed || this.mime) this.renew(video.error?.message || 'the browser cannot decode the media');
    });
    // A page that was hidden has missed its timers.
    document.addEventListener('visibilitychange', () => this.look(), { signal });
  }

  private detach(): void {
    const { video } = this;
    if (this.address !== null) URL.revokeObjectURL(this.address);
    this.address = null;
    if (video.srcObject) video.srcObject = null;
    video.removeAttribute('src');
    video.load();
  }

  /** Another source, where the present one can take no more. */
  private renew(reason: string): void {
    const now = performance.now();
    this.renewals = [...this.renewals.filter((at) => at > now - 60_000), now];
    this.host.stop();
    if (this.renewals.length > MOST_RENEWALS) {
      this.emit('error', { code: 'media', message: reason });
      return;
    }
    this.before = {
      messages: this.before.messages + this.traffic.messages,
      media: this.before.media + this.traffic.media,
      overhead: this.before.overhead + this.traffic.overhead,
    };
    this.traffic = { messages: 0, media: 0, overhead: 0 };
    if (this.recorded) this.wish.from = this.video.currentTime;
    this.placed = false;
    this.awaited = null;
    this.mime = '';
    this.pace.reset();
    this.host.start({ do: 'open', wish: this.wish });
  }

  private order(order: Order): void {
    this.host.order(order);
  }

  private hear(report: Report): void {
    switch (report.is) {
      case 'source':
        this.attach(report.source);
        break;
      case 'hello': {
        const { renditions, rendition, duration } = report.hello;
        this.hello = report.hello;
        this.connected = true;
        this.serverPaused = false;
        if (duration !== null) this.following = false;
        this.emit('open', { renditions, rendition, duration });
        break;
      }
      case 'rendition':
        this.rendition = report.name;
        this.mime = report.mime;
        this.emit('rendition', { name: report.name, codecs: this.stats().codecs ?? '' });
        break;
      case 'media':
        this.traffic = report.traffic;
        this.mime = report.mime;
        this.chunk = report.chunk;
        if (report.first) this.arrivedAt = performance.now();
        this.look();
        break;
      case 'epoch':
        this.epoch = report.at;
        break;
      case 'lost':
        if (this.connected) this.count.reconnects += 1;
        this.connected = false;
        this.emit('reconnecting', { attempt: report.attempt, delay: report.delay, reason: report.reason });
        break;
      case 'broken':
        this.renew(report.reason);
        break;
      case 'failed':
        this.over = true;
        this.emit('error', { code: report.code, message: report.reason });
    }
  }

  private attach(source: unknown): void {
    const { video } = this;
    if (this.address !== null) URL.revokeObjectURL(this.address);
    this.address = null;
    if (source instanceof (sourceClass() ?? Object)) {
      video.srcObject = null;
      this.address = URL.createObjectURL(source as MediaSource);
      video.src = this.address;
    } else {
      video.removeAttribute('src');
      video.srcObject = source as MediaProvider;
    }
  }

  /** Puts the picture where it is to begin, once there is enough for it to go on. */
  private place(now: number): void {
    const { video } = this;
    const range = rangesOf(video.buffered).at(-1);
    if (!range || this.arrivedAt === null) return;
    const { from } = this.wish;
    const wanted = typeof from === 'number' ? from : range.start;
    if (!this.recorded && wanted > range.end + ELSEWHERE) this.following = true;
    const live = this.live(range, now);
    if (this.following && live < range.start && now - this.arrivedAt < PATIENCE) return;
    this.arrivedAt = null;
    this.placed = true;
    this.end = range.end;
    if (this.following) {
      this.move(Math.max(range.start, live));
    } else {
      // The server begins at the keyframe before, and what is between is still to come.
      this.awaited = Math.max(range.start, wanted);
      if (Math.abs(video.currentTime - this.awaited) > ROUNDING) this.move(this.awaited);
    }
  }

  /** Where live is to be watched: a chunk has to last until the next, and the reserve beyond. */
  private live({ end }: Range, now: number): number {
    return end - this.chunk - this.pace.reserve(now);
  }

  /** Looks at the picture and what is in front of it, and does what is to be done. */
  private look(): void {
    const { video, pace } = this;
    const now = performance.now();
    if (!this.placed) this.place(now);
    if (!this.placed || this.over) return;
    if (Math.abs(video.currentTime - this.told) > TOLD_EVERY) this.tellPlace();
    const ranges = rangesOf(video.buffered);
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
    // Where live is, though there be a hole on the way.
    const end = ranges.at(-1)?.end ?? this.end;
    if (end !== this.end) {
      // What was there just before the newest came.
      if (this.end <= end) pace.measured(now, this.end - video.currentTime);
      this.end = end;
    }
    if (pace.isTooFar(now)) this.jumpToLive();
    const rate = pace.rate(now);
    if (video.playbackRate !== rate) video.playbackRate = rate;
  }

  /** Has the server stop while nothing of it is needed. Answers whether the picture is paused. */
  private hold(now: number): boolean {
    const { paused } = this.video;
    const ahead = this.ahead();
    const stop = this.recorded
      ? ahead > AHEAD.most
      : paused && this.pausedAt !== null && now - this.pausedAt > PAUSED_LONG;
    if (stop && !this.serverPaused) {
      this.serverPaused = true;
      this.order({ do: 'pause', paused: true });
    } else if (this.recorded && this.serverPaused && ahead < AHEAD.least) {
      this.serverPaused = false;
      this.order({ do: 'pause', paused: false });
    }
    return paused;
  }

  /** A pause is over. */
  private resume(): void {
    this.pausedAt = null;
    this.pace.reset();
    if (this.recorded) return;
    if (this.serverPaused) {
      this.serverPaused = false;
      this.order({ do: 'pause', paused: false });
      // What was missed meanwhile, as far as the server still has it.
      if (!this.following) this.ask(this.video.currentTime);
    } else if (this.following && this.placed && this.ahead() > 1) {
      this.jumpToLive();
    }
  }

  /** Pushes a picture that stands still though there is more: some decoders wait where they need not. */
  private push(now: number, end: number): void {
    const { video, moved } = this;
    if (video.currentTime !== moved.time || end - video.currentTime < 0.3) {
      this.moved = { time: video.currentTime, at: now };
    } else if (now - moved.at > STUCK_AFTER) {
      this.count.jumps += 1;
      this.moved = { time: -1, at: now };
      this.move(video.currentTime + 0.01);
    }
  }

  private jumpToLive(): void {
    const range = rangesOf(this.video.buffered).at(-1);
    if (!range) return;
    const time = Math.max(range.start, this.live(range, performance.now()));
    if (time <= this.video.currentTime) return;
    this.count.jumps += 1;
    this.end = range.end;
    this.move(time);
  }

  private move(time: number): void {
    this.pace.reset();
    this.video.currentTime = time;
  }

  /** The picture was put elsewhere, by us or by the viewer: asks for what is not buffered. */
  private sought(): void {
    const { video } = this;
    const { currentTime } = video;
    this.pace.reset();
    this.tellPlace();
    const ranges = rangesOf(video.buffered);
    // Before there are media, and where what comes is waited for already.
    if (!this.placed && this.awaited === null) return;
    if (this.awaited !== null && Math.abs(currentTime - this.awaited) < ROUNDING) return;
    if (this.placed && rangeAt(ranges, currentTime)) return;
    if (!this.recorded && currentTime > (ranges.at(-1)?.end ?? currentTime)) {
      this.goLive();
      return;
    }
    this.leaveLive();
    this.ask(currentTime);
  }

  /** Has the server go on at `time`, where the picture is. */
  private ask(time: number): void {
    this.placed = false;
    this.awaited = time;
    this.wish.from = time;
    this.order({ do: 'seek', time });
  }

  private tellPlace(): void {
    this.told = this.video.currentTime;
    this.order({ do: 'at', time: this.told });
  }

  private leaveLive(): void {
    if (this.following) this.video.playbackRate = 1;
    this.following = false;
  }

  private ahead(): number {
    const { buffered, currentTime } = this.video;
    const range = rangeAt(rangesOf(buffered), currentTime);
    return range ? range.end - currentTime : 0;
  }

  private tell(): void {
    if (!this.placed) return;
    const stats = this.stats();
    this.emit('stats', stats);
    if (!this.recorded) {
      const { latency, targetLatency, playbackRate } = stats;
      this.emit('latency', { latency, target: targetLatency, playbackRate });
    }
  }
}

serve();
