import { Beacon, beaconUrl, type Told } from '../push/beacon';
import { Refused, readStream, type Stream } from '../shared/api';
import { askTime, ServerClock } from '../shared/clock';
import { missingCodecs } from '../shared/codec';
import { isRecorded, sourceUrl, type Via, type WatchRequest } from '../shared/streams';
import { endOfBuffered } from './buffered';
import {
  type Condition,
  condition,
  type Facts,
  type Failure,
  type Happening,
  initialFacts,
  next,
  wantsEngine,
} from './condition';
import {
  type Choices,
  type Engine,
  type EngineEvents,
  NO_CHOICES,
  NO_STATS,
  playerOf,
  type StartEngine,
  told,
} from './engines/engine';
import { withReason } from './refusal';
import { type Stall, StallMeter } from './stalls';
import { Wishes } from './wishes';

/**
 * Times of a visit's events, in milliseconds of `performance.now()`: the navigation to the page is
 * 0.
 */
export interface Moments {
  /** The page's script ran. */
  opened: number;
  /** The server's list was first read. */
  listed?: number;
  /** The engine's code was loaded, and the engine started. */
  engineStarted?: number;
  /** The manifest or multivariant playlist was read. */
  manifest?: number;
  /** The first frame was shown. */
  firstFrame?: number;
}

export interface Stats {
  stream: string | null;
  via: Via | null;
  /** hls.js, dash.js or the browser, with its version. */
  engine: string | null;
  condition: Condition['kind'];
  /**
   * Seconds from the capture of the frame on the screen to now, by the server's clock; null if
   * not live or not known.
   */
  latency: number | null;
  /** The latency that the engine steers for, in seconds. */
  targetLatency: number | null;
  /** Seconds of media ahead of the playhead. */
  buffer: number;
  /** Bit rate of the present rendition, in bit/s. */
  bitrate: number | null;
  width: number | null;
  height: number | null;
  frameRate: number | null;
  codec: string | null;
  /** Name of the rendition, if the engine knows it. */
  rendition: string | null;
  /** Bytes received: media, and the overhead of the delivery. Null if the engine does not count. */
  traffic: { media: number; overhead: number } | null;
  decodedFrames: number;
  droppedFrames: number;
  /**
   * Stalls after the first frame: their number, their total length, and the first hundred one by
   * one.
   */
  stalls: number;
  stallSeconds: number;
  stallList: Stall[];
  currentTime: number;
  duration: number | null;
  playbackRate: number;
  paused: boolean;
  muted: boolean;
  volume: number;
  moments: Moments;
}

/** Time between reads of the server's list, in milliseconds. */
const LOOK_SOON = 1_000;
const LOOK_LATER = 3_000;
/**
 * After this many quick reads, the broadcast is unlikely to begin soon, so reads become less
 * frequent.
 */
const QUICK_LOOKS = 30;
/**
 * How long playback may wait for media that the server has, before a new engine starts, in
 * milliseconds.
 */
const STUCK_AFTER = 8_000;
const STUCK_AT_START_AFTER = 15_000;
/** An engine that fails this soon after it got the viewer's choices may fail because of them, in milliseconds. */
const DOUBTFUL_FOR = 20_000;
const CLOCK_EVERY = 60_000;

type Listener = () => void;

/** A visit to a watch page: the stream's state on the server, the engine, and the video element. */
export class Session {
  readonly video: HTMLVideoElement;
  via: Via | null;
  private facts: Facts;
  private described: Condition;
  private listed: Stream | null = null;
  private engine: Engine | null = null;
  private engineGeneration = -1;
  private beacon: Beacon | null = null;
  /** When the present engine started, in milliseconds of `performance.now()`. */
  private engineStarted = 0;
  /** Seconds until its first frame. */
  private startup: number | null = null;
  private readonly stalls = new StallMeter();
  private readonly clock = new ServerClock();
  private readonly moments: Moments;
  private readonly wishes = new Wishes();
  /** When an engine last got choices that an engine before had. */
  private repeatedAt = Number.NEGATIVE_INFINITY;
  private readonly listeners = new Set<Listener>();
  /** Whether the viewer paused, by this page or by a media key. */
  private held = false;
  /** Whether the element's present source has not played yet. */
  private begins = true;
  /** Whether the code of the newest engine could not be loaded. */
  private unloaded = false;
  /** Whether the viewer has asked for another position, and playback is not there yet. */
  private jumps = false;
  /** Why the viewer's delivery failed, if the page has gone over to another. */
  private exchanged: string | null = null;
  /** Position in a file at which the next engine goes on, in seconds. */
  private resumeAt = 0;
  /** Whether the present engine has shown a frame. Before that, its position tells nothing. */
  private arrived = false;
  /** Notes that the present engine has shown a frame. */
  private shown: () => void = () => undefined;
  private looks = 0;
  private stuckTimer: ReturnType<typeof setTimeout> | undefined;
  private looking: AbortController | null = null;
  /** The newest read of the list of streams. */
  private looked: Promise<void> = Promise.resolve();

  constructor(
    readonly request: WatchRequest,
    private readonly loadEngine: (via: Via) => Promise<StartEngine>,
    opened: number,
  ) {
    this.moments = { opened };
    this.via = request.via;
    this.facts = initialFacts({
      stream: request.stream,
      recorded: request.stream !== null && isRecorded(request.stream),
      unknownVia: request.via === null ? request.askedVia : null,
      capable: hasMediaSource() || playsHlsItself(),
    });
    this.described = condition(this.facts);
    this.video = document.createElement('video');
    this.video.muted = true;
    // Safari decides about autoplay by the attribute.
    this.video.defaultMuted = true;
    this.video.autoplay = true;
    this.video.playsInline = true;
    // Voices keep their pitch while playback catches up with live.
    this.video.preservesPitch = true;
    this.observe();
  }

  /** Looks up the stream and plays it. Call this once. */
  begin(): void {
    if (this.request.stream === null) return;
    // The engine's code is loaded while the list is read.
    if (this.via) void this.loadEngine(this.via).catch(() => undefined);
    void this.look();
    this.follow();
    void askTime(this.clock, 3);
    setInterval(() => {
      this.clock.age();
      void askTime(this.clock, 3);
    }, CLOCK_EVERY);
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'visible') void this.look();
    });
  }

  /**
   * Calls `listener` when the condition or a setting of the viewer has changed. Returns a function
   * that stops this.
   */
  subscribe(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  get condition(): Condition {
    return this.described;
  }

  get recorded(): boolean {
    return this.facts.recorded;
  }

  stats(): Stats {
    const { video } = this;
    const now = performance.now();
    const known = this.engine?.stats() ?? NO_STATS;
    const rendition = this.listed?.tracks.find(
      (track) =>
        track.kind === 'video' && track.width === video.videoWidth && track.height === video.videoHeight,
    );
    const quality = video.getVideoPlaybackQuality?.();
    const latency =
      known.shownAt === null ? known.latency : (this.clock.at(Date.now()) - known.shownAt) / 1000;
    return {
      stream: this.request.stream,
      via: this.via,
      engine: this.engine?.name ?? null,
      condition: this.described.kind,
      latency: this.moments.firstFrame === undefined || this.facts.recorded ? null : latency,
      targetLatency: known.targetLatency,
      buffer: endOfBuffered(video) - video.currentTime,
      bitrate: known.bitrate ?? rendition?.bitrate ?? null,
      width: video.videoWidth || null,
      height: video.videoHeight || null,
      frameRate: known.frameRate ?? rendition?.frameRate ?? null,
      codec: known.codec ?? rendition?.codec ?? null,
      rendition: known.rendition,
      traffic: known.traffic,
      decodedFrames: quality?.totalVideoFrames ?? 0,
      droppedFrames: quality?.droppedVideoFrames ?? 0,
      stalls: this.stalls.count(),
      stallSeconds: this.stalls.seconds(now),
      stallList: this.stalls.list(now),
      currentTime: video.currentTime,
      duration: Number.isFinite(video.duration) ? video.duration : null,
      playbackRate: video.playbackRate,
      paused: video.paused,
      muted: video.muted,
      volume: video.volume,
      moments: { ...this.moments },
    };
  }

  /** The tracks that the viewer can choose from. */
  choices(): Choices {
    return this.engine?.choices() ?? NO_CHOICES;
  }

  chooseAudio(id: number): void {
    if (this.engine) this.wishes.choose(this.engine, 'audio', id);
    this.tell();
  }

  chooseSubtitles(id: number | null): void {
    if (this.engine) this.wishes.choose(this.engine, 'subtitles', id);
    this.tell();
  }

  chooseRendition(id: number | null): void {
    if (this.engine) this.wishes.choose(this.engine, 'renditions', id);
    this.tell();
  }

  togglePlay(): void {
    const { video } = this;
    if (video.paused || video.ended) {
      // From the end, playback begins anew. After a long pause, it goes on at live.
      this.jumps = true;
      void video.play().catch(() => this.tell());
    } else {
      this.hold(true);
      this.engine?.hold();
      video.pause();
    }
  }

  toggleMute(): void {
    const { video } = this;
    // At volume 0, unmuting would have no audible effect.
    if (video.muted && video.volume === 0) video.volume = 0.5;
    video.muted = !video.muted;
  }

  setVolume(volume: number): void {
    this.video.volume = Math.min(1, Math.max(0, volume));
    this.video.muted = this.video.volume === 0;
  }

  /** Goes to `time` in a file, in seconds. */
  seek(time: number): void {
    const { duration } = this.video;
    if (!this.facts.recorded || !Number.isFinite(duration)) return;
    this.jumps = true;
    this.video.currentTime = Math.min(duration, Math.max(0, time));
    this.tell();
  }

  /** Goes ahead by this many seconds, or back if negative. */
  step(seconds: number): void {
    this.seek(this.video.currentTime + seconds);
  }

  goLive(): void {
    if (this.facts.recorded) return;
    this.jumps = this.engine !== null;
    this.engine?.goLive();
    void this.video.play().catch(() => this.tell());
  }

  retry(): void {
    // After an upgrade of the server, only a new page knows the names of the player's files.
    if (this.unloaded) {
      location.reload();
      return;
    }
    this.hold(false);
    this.happen({ type: 'retry' });
    void this.look();
  }

  /** Plays with another delivery. */
  choose(via: Via): void {
    if (via === this.via) return;
    this.exchanged = null;
    this.changeTo(via);
  }

  /** Why the page plays another delivery than the viewer chose; null if it does not. */
  get reasonForOther(): string | null {
    return this.exchanged;
  }

  private changeTo(via: Via): void {
    this.via = via;
    this.stalls.restart(performance.now());
    this.happen({ type: 'via', unknownVia: null });
  }

  private happen(happening: Happening): void {
    const fails = happening.type === 'failed' || happening.type === 'stuck';
    if (fails && performance.now() - this.repeatedAt < DOUBTFUL_FOR) this.wishes.forget();
    this.facts = next(this.facts, happening);
    this.described = condition(this.facts);
    this.steer();
    if (this.described.kind === 'ended') this.stalls.interrupted(performance.now());
    this.tell();
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }

  /** Makes the engine fit the facts: an engine of the present generation, or none. */
  private steer(): void {
    const { generation } = this.facts;
    const wanted = wantsEngine(this.facts);
    if (this.engineGeneration === generation && wanted) return;
    if (this.engine) {
      // For the viewer, a failed engine is a stall, as an empty buffer is.
      if (!this.video.paused) this.stalls.waiting(performance.now(), false);
      if (this.arrived) this.resumeAt = this.video.ended ? 0 : this.video.currentTime;
      this.arrived = false;
      // What the element still tells is of the engine before.
      this.shown = () => undefined;
      this.beacon?.end();
      this.beacon = null;
      this.engine.destroy();
      this.engine = null;
    }
    this.engineGeneration = -1;
    const { stream } = this.request;
    const { via } = this;
    if (!wanted || stream === null || via === null) return;
    this.engineGeneration = generation;
    this.facts = { ...this.facts, engine: 'starting' };
    this.described = condition(this.facts);
    void this.start(stream, via, generation);
  }

  private async start(stream: string, via: Via, generation: number): Promise<void> {
    const current = () => this.engineGeneration === generation;
    let startEngine: StartEngine;
    try {
      startEngine = await this.loadEngine(via);
    } catch (error) {
      if (!current()) return;
      this.unloaded = true;
      this.fail({ kind: 'network', what: 'The player itself could not be loaded.', detail: String(error) });
      return;
    }
    if (!current()) return;
    this.unloaded = false;
    this.engineStarted = performance.now();
    this.startup = null;
    this.moments.engineStarted ??= this.engineStarted;
    // dash.js takes the attribute away when it ends.
    this.hold(this.held);
    this.awaitFirstFrame(current);
    // play() is called when there are media, not here. dash.js begins to refresh the manifest at
    // the event `play`, and would miss an event that comes before it listens.
    this.watchOver(STUCK_AT_START_AFTER);
    const { recorded } = this.facts;
    const { prefix, credentials } = this.request;
    const { plays } = playerOf(via, hasMediaSource());
    const options = {
      lowLatency: via !== 'hls',
      recorded,
      startAt: recorded ? this.resumeAt : 0,
      clock: () => this.clock.at(Date.now()),
      credentials,
    };
    const engineEvents: EngineEvents = {
      manifest: () => {
        this.moments.manifest ??= performance.now();
      },
      trackOver: () => {
        // If the broadcast has ended, all its tracks are over. The server knows whether it has.
        void this.look().then(() => {
          if (current()) this.happen({ type: 'track-over' });
        });
      },
      failed: (failure) => {
        if (current()) this.fail(failure);
      },
    };
    try {
      const url = sourceUrl(stream, plays, prefix, credentials.query);
      this.engine = startEngine(this.video, url, options, engineEvents);
    } catch (error) {
      this.fail({ kind: 'engine', what: 'The player could not be started.', detail: String(error) });
      return;
    }
    const how = told(plays, recorded);
    if (how === null) return;
    // A beacon can have no headers.
    const url = beaconUrl(sourceUrl(stream, 'push', prefix, credentials.query));
    this.beacon = new Beacon(url, how, () => this.told());
  }

  /** What the server is told of the viewer. */
  private told(): Told {
    const { video, startup } = this;
    const known = this.engine?.stats() ?? NO_STATS;
    const plays = video.paused ? 'a' : this.stalls.stalled() ? 'r' : 'p';
    return {
      buffer: endOfBuffered(video) - video.currentTime,
      bitrate: known.bitrate,
      throughput: known.throughput,
      stalls: this.stalls.count(),
      startup,
      state: video.ended ? 'e' : startup === null ? 's' : plays,
    };
  }

  private fail(failure: Failure): void {
    // To ask for the reason may take longer than an engine may stand.
    clearTimeout(this.stuckTimer);
    this.stuckTimer = undefined;
    // The server's list is read first: a publisher that left explains a failure better than the
    // engine can. The failure is shown after that, so that the message does not change while it is
    // read.
    const { generation } = this.facts;
    void Promise.all([this.look(), withReason(failure, this.request.credentials)]).then(([, explained]) => {
      if (this.facts.generation !== generation) return;
      const { instead } = explained;
      if (instead && this.facts.directory === 'live') {
        this.exchanged = explained.what;
        this.changeTo(instead);
      } else {
        this.happen({ type: 'failed', failure: explained });
        // The network may have come back while the list was read.
        this.watchOver(STUCK_AFTER);
      }
    });
  }

  /** Notes whether the viewer wants no playback. A new source plays by itself where the attribute is set. */
  private hold(held: boolean): void {
    this.held = held;
    this.video.autoplay = !held;
  }

  private awaitFirstFrame(current: () => boolean): void {
    const { video } = this;
    const shown = () => {
      if (!current() || this.arrived) return;
      // The browser may still report the last frame of the engine before.
      if (video.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) {
        this.awaitFirstFrame(current);
        return;
      }
      this.arrived = true;
      this.moments.firstFrame ??= performance.now();
      this.startup ??= (performance.now() - this.engineStarted) / 1000;
      this.beacon?.tell();
      this.stalls.firstFrame();
      if (this.engine && this.wishes.repeat(this.engine)) this.repeatedAt = performance.now();
      this.engineIs('playing');
    };
    this.shown = shown;
    if ('requestVideoFrameCallback' in video) video.requestVideoFrameCallback(shown);
    // A stream without video begins when audio plays.
    const sounding = () => {
      // Nor does a browser tell of the frames of a page that is hidden.
      if (video.videoWidth === 0 || document.hidden) shown();
    };
    video.addEventListener('requestVideoFrameCallback' in video ? 'playing' : 'loadeddata', sounding, {
      once: true,
    });
  }

  private observe(): void {
    const { video } = this;
    let seenTime = -1;
    video.addEventListener('emptied', () => {
      this.begins = true;
    });
    video.addEventListener('playing', () => {
      this.begins = false;
      this.jumps = false;
      this.stalls.moving(performance.now());
      if (this.moments.firstFrame !== undefined) this.engineIs('playing');
    });
    video.addEventListener('timeupdate', () => {
      if (video.paused || video.seeking || video.currentTime === seenTime) return;
      seenTime = video.currentTime;
      if (video.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA) {
        this.stalls.moving(performance.now());
        if (this.facts.engine === 'waiting') this.engineIs('playing');
      }
    });
    video.addEventListener('waiting', () => {
      // Engines seek, too: to catch up, and over holes. Such a wait is a stall.
      this.stalls.waiting(performance.now(), video.seeking && this.jumps);
      if (this.moments.firstFrame !== undefined) this.engineIs('waiting');
    });
    // Autoplay usually does this itself, but not always when one engine follows another on the same
    // element. A source that has played was paused by somebody, and the event `pause` may still be to come.
    video.addEventListener('canplay', () => {
      // A source that is not to play may show its only frame before the browser has told its state.
      if (video.paused && this.held) this.shown();
      if (video.paused && this.begins && !this.held) void video.play().catch(() => this.tell());
    });
    video.addEventListener('play', () => {
      // The event comes later than the call. The viewer may have paused again meanwhile.
      if (!video.paused) this.hold(false);
    });
    // The viewer went back from the end, and playback has not started.
    video.addEventListener('seeked', () => {
      this.jumps = false;
      if (this.facts.engine === 'finished' && !video.ended) this.engineIs('playing');
    });
    video.addEventListener('pause', () => {
      // A source that is put on the element pauses it without this event. A browser itself pauses what is not seen or
      // not heard, and plays it again later, but not a source that comes meanwhile.
      const noticed = !document.hidden && !video.muted;
      if (video.paused && !video.ended && noticed) this.hold(true);
      this.stalls.interrupted(performance.now());
      this.tell();
    });
    video.addEventListener('ended', () => {
      this.stalls.interrupted(performance.now());
      this.engineIs('finished');
    });
    for (const event of ['play', 'seeked', 'volumechange', 'durationchange', 'resize'] as const) {
      video.addEventListener(event, () => this.tell());
    }
  }

  private engineIs(engine: 'playing' | 'waiting' | 'finished'): void {
    clearTimeout(this.stuckTimer);
    this.stuckTimer = undefined;
    // An engine may also end although the broadcast goes on.
    if (engine === 'waiting' || engine === 'finished') this.watchOver(STUCK_AFTER);
    if (this.facts.engine !== engine) this.happen({ type: 'engine', engine });
  }

  /** Starts a new engine if playback still waits after `delay` milliseconds. */
  private watchOver(delay: number): void {
    clearTimeout(this.stuckTimer);
    const timer = setTimeout(async () => {
      // The server's list is read first: an engine that waits for a lost publisher is not stuck.
      await this.look();
      if (timer !== this.stuckTimer) return;
      // A browser may load nothing of a source that is not to play, and may not play what it has before it is asked. A
      // video that somebody paused while it waited for media does not go on until somebody plays it.
      const { paused, readyState } = this.video;
      const isIdle = this.held || readyState >= HTMLMediaElement.HAVE_CURRENT_DATA;
      const isUnderWay = () => this.facts.engine === 'waiting' || this.facts.engine === 'starting';
      if (!(paused && isIdle && isUnderWay())) this.happen({ type: 'stuck' });
      // While the publisher is away, or the server does not answer, the event had no effect. The
      // publisher may be back at the next try.
      if (timer === this.stuckTimer && isUnderWay()) this.watchOver(STUCK_AFTER);
    }, delay);
    this.stuckTimer = timer;
  }

  /** Reads the list again after a while; soon if a change is expected. */
  private follow(): void {
    const expecting = this.facts.engine !== 'playing' && this.looks < QUICK_LOOKS;
    setTimeout(
      async () => {
        if (document.visibilityState === 'visible' || this.facts.engine !== 'playing') {
          this.looks += 1;
          // A new read would cancel the one before, while the browser asks its user for a password.
          await (this.looking ? this.looked : this.look());
        }
        this.follow();
      },
      expecting ? LOOK_SOON : LOOK_LATER,
    );
  }

  /** Whether tracks have gone since the last read although the broadcast goes on. */
  private hasLost(stream: Stream | null): boolean {
    const before = this.listed;
    if (this.facts.recorded || before === null || stream?.state !== 'live') return false;
    if (before.since?.getTime() !== stream.since?.getTime()) return false;
    const names = new Set(stream.tracks.map(({ name }) => name));
    return before.tracks.some(({ name }) => !names.has(name));
  }

  /**
   * Reads what the server has of the stream. A new read cancels the one before, and both resolve when the newest
   * is done, so that a caller always decides by an answer.
   */
  private look(): Promise<void> {
    this.looking?.abort();
    const looking = new AbortController();
    this.looking = looking;
    this.looked = this.ask(looking).then(() => {
      if (looking.signal.aborted) return this.looked;
      this.looking = null;
      return undefined;
    });
    return this.looked;
  }

  private async ask(looking: AbortController): Promise<void> {
    try {
      const { stream: path, prefix, credentials } = this.request;
      const stream = path === null ? null : await readStream(path, prefix, credentials, looking.signal);
      if (looking.signal.aborted) return;
      this.moments.listed ??= performance.now();
      if (this.hasLost(stream)) this.happen({ type: 'track-over' });
      this.listed = stream;
      const directory = stream?.state ?? 'absent';
      if (directory !== this.facts.directory) this.looks = 0;
      this.happen({
        type: 'directory',
        directory,
        since: stream?.since?.getTime() ?? null,
        missingCodecs: stream && hasMediaSource() ? missingCodecs(stream.tracks, decodes) : [],
      });
    } catch (error) {
      if (looking.signal.aborted) return;
      // The media are refused, too, and that answer says why.
      const refused = error instanceof Refused && [401, 403, 429].includes(error.status);
      const fails = error instanceof Refused && error.status >= 500;
      const directory = refused ? 'live' : fails ? 'failing' : 'unreachable';
      this.happen({ type: 'directory', directory, since: null, missingCodecs: [] });
    }
  }
}

type MediaSourceLike = { isTypeSupported(mime: string): boolean };

function mediaSource(): MediaSourceLike | undefined {
  const scope = globalThis as { ManagedMediaSource?: MediaSourceLike; MediaSource?: MediaSourceLike };
  return scope.MediaSource ?? scope.ManagedMediaSource;
}

/** Whether hls.js and dash.js can work in this browser. */
export function hasMediaSource(): boolean {
  return mediaSource() !== undefined;
}

function playsHlsItself(): boolean {
  return document.createElement('video').canPlayType('application/vnd.apple.mpegurl') !== '';
}

function decodes(mime: string): boolean {
  return mediaSource()?.isTypeSupported(mime) ?? false;
}
