/**
 * A player of live streams and files that headwater pushes over a WebSocket. Documented in
 * docs/player.md.
 *
 * Everything public is in this file, so that its type declarations need no other file.
 */

import { Beacon, beaconUrl, type Told } from './beacon';
import type { Hello } from './events';
import type { Order, Report, Traffic } from './feed';
import { Host, serve } from './host';
import { Pace } from './pace';
import { Steer } from './steer';
import { sourceClass } from './store';

export interface PushOptions {
  /**
   * Where to begin: at the newest keyframe (`live`; for a file, at its beginning), at the oldest
   * media that the server has (`start`), or at a time in seconds. Default `live`.
   */
  from?: 'live' | 'start' | number;
  /** Plays only this rendition. By default the server chooses by the capacity of the connection. */
  rendition?: string | null;
  /** Plays no rendition with more bit/s than this. */
  max?: number | null;
  /**
   * Seconds to keep buffered while live: at least, and at most after stalls. `most` is 2 by
   * default. `least` is 0.1 by default, or 0.5 if the server chooses among several renditions.
   */
  reserve?: { least?: number; most?: number };
  /** How long to try to reach a lost server before that is an error, in seconds. Default 30. */
  patience?: number;
  /**
   * Whether connection and buffer run in a worker, if the browser allows it. Or the address of the
   * worker's script, which is this module, if it was moved. Default true.
   */
  worker?: boolean | string | URL;
  /** The server's clock in milliseconds since 1970, for latency. Default: this machine's clock. */
  clock?: () => number;
  /** Whether the player tells the server every ten seconds how playback is. Default true. */
  report?: boolean;
}

export interface PushRendition {
  name: string;
  /** In bit/s; 0 until the server has measured it. */
  bitrate: number;
  /** As `1280x720`. */
  resolution: string | null;
  /** As in RFC 6381. */
  codecs: string;
}

export interface PushStats {
  /** Name of the present rendition. */
  rendition: string | null;
  /** Its bit/s, without audio. */
  bitrate: number | null;
  /** Codecs of video and audio, as in RFC 6381. */
  codecs: string | null;
  /**
   * Seconds from the capture of the frame on the screen to now. Null for files, and while
   * unknown.
   */
  latency: number | null;
  /** The latency that the player steers for, in seconds. */
  targetLatency: number | null;
  /** When the frame on the screen was captured, in milliseconds since 1970. */
  shownAt: number | null;
  /** Seconds of media ahead of the playhead. */
  buffer: number;
  playbackRate: number;
  /** WebSocket messages received. */
  messages: number;
  /** Bytes of CMAF headers and chunks. */
  mediaBytes: number;
  /** All other bytes of the messages: WebSocket frame headers, and the server's text. */
  overheadBytes: number;
  /**
   * How often playback ran out of media, how often it jumped ahead or over a hole, and how often
   * the connection was lost.
   */
  stalls: number;
  jumps: number;
  reconnects: number;
  /** Whether connection and buffer are in a worker. */
  worker: boolean;
}

export interface PushEvents {
  /** The server answered; tells what can be played. Sent again after each reconnection. */
  open: { renditions: PushRendition[]; rendition: string | null; duration: number | null };
  /** Another rendition, or other codecs, from here on. */
  rendition: { name: string; codecs: string };
  /** Twice a second while live. */
  latency: { latency: number | null; target: number | null; playbackRate: number };
  /** Twice a second while media come. */
  stats: PushStats;
  /** The connection was lost; the next is tried after `delay` milliseconds. */
  reconnecting: { attempt: number; delay: number; reason: string };
  /** Everything was played, and no more media come. */
  end: undefined;
  /** The player has stopped. `code` is `not-found`, `refused`, `network`, `codec` or `media`. */
  error: { code: string; message: string };
}

type Listener<K extends keyof PushEvents> = (event: PushEvents[K]) => void;

/**
 * How often listeners get figures, and how often to look at the playhead when nothing arrives.
 * Milliseconds.
 */
const FIGURES_EVERY = 500;
const LOOK_EVERY = 100;
/**
 * The reserve in seconds: for one rendition, and for several. With several, the server needs time
 * to notice that the link has become slower.
 */
const RESERVE = 0.1;
const RESERVE_OF_SEVERAL = 0.5;
/** How often the source may be replaced within a minute. */
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
  private readonly beacon: Beacon | null;
  private readonly began = performance.now();
  /** Seconds until the first frame. */
  private startup: number | null = null;
  /** Removes all listeners of the video element. */
  private readonly aborted = new AbortController();
  private readonly host: Host;
  /** Whether remote playback was disabled before this player did that. */
  private readonly keptHere: boolean;
  private address: string | null = null;
  private hello: Hello | null = null;
  private rendition: string | null = null;
  private mime = '';
  private traffic: Traffic = { messages: 0, media: 0, overhead: 0 };
  /** Traffic of earlier feeds. */
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
   * Begins to load `url` into `video`. `url` is the address of a stream's push endpoint
   * (`https://HOST/live/NAME/push`, or `wss:`). Playback begins as with any media element: by its
   * attribute `autoplay`, or by `play()`.
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
    // Safari's ManagedMediaSource opens only if remote playback is disabled.
    video.disableRemotePlayback = true;
    this.listen();
    this.host = new Host(options.worker ?? true, (report) => this.hear(report));
    this.host.start({ do: 'open', wish: this.wish });
    this.timers.push(setInterval(() => this.tell(), FIGURES_EVERY));
    this.timers.push(setInterval(() => this.steer.look(), LOOK_EVERY));
    this.beacon = options.report === false ? null : new Beacon(beaconUrl(address), 'sf=o', () => this.told());
  }

  /** Calls `listener` at each event `name`. Returns a function that stops this. */
  on<K extends keyof PushEvents>(name: K, listener: Listener<K>): () => void {
    const listeners = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, listeners);
    listeners.add(listener as Listener<keyof PushEvents>);
    return () => listeners.delete(listener as Listener<keyof PushEvents>);
  }

  play(): Promise<void> {
    return this.video.play();
  }

  /**
   * Pauses and keeps the position. `play` resumes there if the server still has it; `goLive` does
   * not.
   */
  pause(): void {
    this.steer.leaveLive();
    this.video.pause();
  }

  /** Goes to `seconds` of the file or of the stream's timeline, and stays behind live. */
  seek(seconds: number): void {
    this.steer.seek(seconds);
  }

  /** Goes to the live edge and stays there. */
  goLive(): void {
    this.steer.goLive();
  }

  /**
   * Plays this rendition and no other; with null the server chooses again. If the browser could not
   * decode the server's choice, the player has set another one itself.
   */
  setRendition(name: string | null): void {
    this.wish.rendition = name;
    this.provide();
    this.order({ do: 'want', wishes: { rendition: name } });
  }

  /** Plays no rendition with more bit/s than this; null removes the limit. */
  setMax(bitrate: number | null): void {
    this.wish.max = bitrate;
    this.order({ do: 'want', wishes: { max: bitrate } });
  }

  /** The available renditions, by falling bit rate. */
  get renditions(): readonly PushRendition[] {
    return this.hello?.renditions ?? [];
  }

  /** Duration of a file in seconds; null for a broadcast. */
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

  /**
   * Ends everything and leaves the video element empty. Call this before another player uses it.
   */
  destroy(): void {
    // By now the element may belong to another player.
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
        // An error in a listener is the page's problem; playback goes on.
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
      if (this.startup !== null) return;
      this.startup = (performance.now() - this.began) / 1000;
      this.beacon?.tell();
    });
    on('pause', () => steer.paused());
    on('play', () => steer.resume());
    on('timeupdate', () => steer.look());
    on('ended', () => this.emit('end', undefined));
    on('error', () => {
      if (steer.placed || this.mime)
        this.renew(video.error?.message || 'the browser cannot decode the media');
    });
    // The timers of a hidden page did not run.
    document.addEventListener('visibilitychange', () => steer.look(), { signal });
  }

  /** Stops with an error. What is buffered can be played to its end, at normal speed. */
  private fail(code: string, message: string): void {
    this.order({ do: 'close' });
    this.letGo();
    this.emit('error', { code, message });
  }

  /** Stops looking at the playhead. */
  private letGo(): void {
    // Only once, also where a player that has failed is destroyed.
    if (!this.aborted.signal.aborted) this.beacon?.end();
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

  /** Makes a new source, because the present one takes no more. */
  private renew(reason: string): void {
    const now = performance.now();
    this.renewals = [...this.renewals.filter((at) => at > now - 60_000), now];
    this.host.stop();
    if (this.renewals.length > MOST_RENEWALS) {
      this.fail('media', reason);
      return;
    }
    for (const what of ['messages', 'media', 'overhead'] as const) {
      this.before[what] += this.traffic[what];
      this.traffic[what] = 0;
    }
    this.wish.from = this.steer.restart();
    this.mime = '';
    this.host.start({ do: 'open', wish: this.wish });
  }

  private order(order: Order): void {
    this.host.order(order);
  }

  private hear(report: Report): void {
    // A late report: the player has already failed.
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

  /** Sets the least reserve, unless the options gave one. */
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
    // A new source begins paused, or by `autoplay`, whatever the state before.
    if (!paused) video.play().catch(() => undefined);
    else if (this.steer.began) video.pause();
  }

  private told(): Told {
    const { video, startup } = this;
    const { buffer, bitrate, stalls } = this.stats();
    const waits = video.readyState < HTMLMediaElement.HAVE_FUTURE_DATA;
    const plays = video.paused ? 'a' : waits ? 'r' : 'p';
    const state = video.ended ? 'e' : startup === null ? 's' : plays;
    return { buffer, bitrate, stalls, startup, state };
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
