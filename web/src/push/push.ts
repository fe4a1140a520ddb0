/**
 * A player of live streams and files that headwater pushes over a WebSocket. Documented in docs/player.md.
 *
 * Everything public is in this file, so that its declarations stand by themselves.
 */

import type { Hello } from './events';
import type { Order, Report, Traffic } from './feed';
import { Host, serve } from './host';
import { Pace } from './pace';
import { Steer } from './steer';
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
  /**
   * Seconds that should be buffered at least while live, and at most after stalls. Default 2 at most; at least 0.1, or
   * 0.5 where the server chooses among several renditions.
   */
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
  /** It does not go on, nor looks at the picture any more. `code` is `not-found`, `refused`, `network`, `codec` or `media`. */
  error: { code: string; message: string };
}

type Listener<K extends keyof PushEvents> = (event: PushEvents[K]) => void;

/** How often listeners are told figures, and how often the picture is looked at when nothing comes. Milliseconds. */
const FIGURES_EVERY = 500;
const LOOK_EVERY = 100;
/** The reserve, in seconds: of one rendition, and where the server first has to notice that the link has fallen. */
const RESERVE = 0.1;
const RESERVE_OF_SEVERAL = 0.5;
/** The source is made anew at most so often, within a minute. */
const MOST_RENEWALS = 3;

export class PushPlayer {
  private readonly listeners = new Map<string, Set<Listener<keyof PushEvents>>>();
  private readonly wish: { url: string; from: 'live' | 'start' | number; patience: number } & {
    rendition: string | null;
    max: number | null;
  };
  private readonly least: number | undefined;
  private readonly pace: Pace;
  private readonly steer: Steer;
  private readonly clock: () => number;
  private readonly timers: ReturnType<typeof setInterval>[] = [];
  /** Nothing of the video element is listened to any more. */
  private readonly aborted = new AbortController();
  private readonly host: Host;
  /** Whether the picture was kept from other devices before this player did. */
  private readonly keptHere: boolean;
  private address: string | null = null;
  private hello: Hello | null = null;
  private rendition: string | null = null;
  private mime = '';
  private traffic: Traffic = { messages: 0, media: 0, overhead: 0 };
  /** Bytes of feeds that were given up. */
  private before: Traffic = { messages: 0, media: 0, overhead: 0 };
  private epoch: number | null = null;
  private connected = false;
  private renewals: number[] = [];
  private reconnects = 0;
  private destroyed = false;

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
    this.least = reserve.least;
    this.pace = new Pace(reserve.least ?? RESERVE, reserve.most ?? 2);
    this.clock = options.clock ?? Date.now;
    this.steer = new Steer(video, this.pace, from, (order) => this.order(order));
    this.keptHere = video.disableRemotePlayback;
    // Safari's ManagedMediaSource opens only where the picture cannot be sent to another device.
    video.disableRemotePlayback = true;
    this.listen();
    this.host = new Host(options.worker ?? true, (report) => this.hear(report));
    this.host.start({ do: 'open', wish: this.wish });
    this.timers.push(setInterval(() => this.tell(), FIGURES_EVERY));
    this.timers.push(setInterval(() => this.steer.look(), LOOK_EVERY));
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
    this.steer.leaveLive();
    this.video.pause();
  }

  /** Goes to `seconds` of the file, or of the stream's timeline, and stays behind live. */
  seek(seconds: number): void {
    this.steer.seek(seconds);
  }

  /** Goes to the live edge, and stays there. */
  goLive(): void {
    this.steer.goLive();
  }

  /**
   * Plays this rendition and no other; null lets the server choose again. Where the server chose one that the browser
   * does not decode, another was set.
   */
  setRendition(name: string | null): void {
    this.wish.rendition = name;
    this.provide();
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
    const live = this.duration === null && this.steer.placed;
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
      buffer: this.steer.ahead(),
      playbackRate: video.playbackRate,
      messages: before.messages + traffic.messages,
      mediaBytes: before.media + traffic.media,
      overheadBytes: before.overhead + traffic.overhead,
      ...this.steer.count,
      reconnects: this.reconnects,
      worker: this.host.inWorker,
    };
  }

  /** Ends everything and leaves the video element empty. To be called before another player has it. */
  destroy(): void {
    // The element may be another player's by now.
    if (this.destroyed) return;
    this.destroyed = true;
    this.host.stop();
    this.letGo();
    this.listeners.clear();
    this.detach();
    this.video.disableRemotePlayback = this.keptHere;
  }

  private emit<K extends keyof PushEvents>(name: K, event: PushEvents[K]): void {
    for (const listener of this.listeners.get(name) ?? []) {
      try {
        listener(event);
      } catch (error) {
        // That is the page's affair: playback goes on.
        reportError(error);
      }
    }
  }

  private listen(): void {
    const { video, steer } = this;
    const { signal } = this.aborted;
    const on = (event: string, does: () => void) => video.addEventListener(event, does, { signal });
    on('seeking', () => steer.sought());
    on('seeked', () => steer.settled());
    on('waiting', () => steer.waiting());
    on('playing', () => {
      steer.began = true;
    });
    on('pause', () => steer.paused());
    on('play', () => steer.resume());
    on('timeupdate', () => steer.look());
    on('ended', () => this.emit('end', undefined));
    on('error', () => {
      if (steer.placed || this.mime)
        this.renew(video.error?.message || 'the browser cannot decode the media');
    });
    // A page that was hidden has missed its timers.
    document.addEventListener('visibilitychange', () => steer.look(), { signal });
  }

  /** It does not go on. What is buffered may be played to its end, at normal speed. */
  private fail(code: string, message: string): void {
    this.order({ do: 'close' });
    this.letGo();
    this.emit('error', { code, message });
  }

  /** Looks at the picture no more. */
  private letGo(): void {
    this.aborted.abort();
    for (const timer of this.timers) clearInterval(timer);
    this.video.playbackRate = 1;
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
      this.fail('media', reason);
      return;
    }
    this.before = {
      messages: this.before.messages + this.traffic.messages,
      media: this.before.media + this.traffic.media,
      overhead: this.before.overhead + this.traffic.overhead,
    };
    this.traffic = { messages: 0, media: 0, overhead: 0 };
    this.wish.from = this.steer.restart();
    this.mime = '';
    this.host.start({ do: 'open', wish: this.wish });
  }

  private order(order: Order): void {
    this.host.order(order);
  }

  private hear(report: Report): void {
    // What was under way when it failed.
    if (this.aborted.signal.aborted) return;
    switch (report.is) {
      case 'source':
        this.attach(report.source);
        break;
      case 'hello': {
        const { renditions, rendition, duration } = report.hello;
        this.hello = report.hello;
        this.connected = true;
        this.provide();
        this.steer.opened(duration !== null);
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
        this.epoch = report.epoch;
        this.steer.arrived(report.first, report.seeks, report.chunk);
        break;
      case 'lost':
        if (this.connected) this.reconnects += 1;
        this.connected = false;
        this.emit('reconnecting', { attempt: report.attempt, delay: report.delay, reason: report.reason });
        break;
      case 'broken':
        this.renew(report.reason);
        break;
      case 'failed':
        this.fail(report.code, report.reason);
    }
  }

  /** Keeps in reserve what it takes, unless that was said. */
  private provide(): void {
    const chosen = this.wish.rendition === null && this.renditions.length > 1;
    this.pace.atLeast(this.least ?? (chosen ? RESERVE_OF_SEVERAL : RESERVE));
  }

  private attach(source: unknown): void {
    const { video } = this;
    const { paused } = video;
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
    // Another source begins paused, or by `autoplay`, whatever the one before did.
    if (!paused) video.play().catch(() => undefined);
    else if (this.steer.began) video.pause();
  }

  private tell(): void {
    if (!this.steer.placed) return;
    const stats = this.stats();
    this.emit('stats', stats);
    if (this.duration === null) {
      const { latency, targetLatency, playbackRate } = stats;
      this.emit('latency', { latency, target: targetLatency, playbackRate });
    }
  }
}

serve();
