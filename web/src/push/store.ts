/**
 * This much is kept behind the playhead, in seconds. It is cut back to this when it is twice as
 * much.
 */
const BEHIND = 10;
/** The same when the browser has no more room. */
const LEAST_BEHIND = 1;
/** Waiting chunks are appended together, up to this many bytes. */
const MOST_AT_ONCE = 1 << 20;
/** Most bytes that may wait for room in the browser. */
const MOST_WAITING = 64 << 20;
/** Shorter than any frame, and a bound on how far presentation is ahead of decoding, in seconds. */
const BEFORE = 0.05;
/** How long to wait before a full buffer is tried again, in milliseconds. */
const TRY_AGAIN = 200;

interface Events {
  /** A source for the video element: a MediaSourceHandle in a worker, the MediaSource itself in the page. */
  opened(source: unknown, transfer: Transferable[]): void;
  /** Media were added. `first`: nothing was buffered before. */
  added(first: boolean): void;
  /** The source is broken; only a new one helps. */
  broken(reason: string): void;
}

type Step =
  | { is: 'header'; bytes: Uint8Array<ArrayBuffer>; mime: string }
  | { is: 'media'; bytes: Uint8Array<ArrayBuffer> }
  | { is: 'empty' }
  | { is: 'finish' };

type Source = MediaSource & { handle?: unknown };

/** The browser's MediaSource class, or ManagedMediaSource if there is no other (iPhone). */
export function sourceClass(): typeof MediaSource | undefined {
  const scope = globalThis as { MediaSource?: typeof MediaSource; ManagedMediaSource?: typeof MediaSource };
  return scope.MediaSource ?? scope.ManagedMediaSource;
}

/** A MediaSource with one SourceBuffer, and the steps that wait for it. */
export class Store {
  /** The type that the SourceBuffer takes now. */
  mime = '';
  private readonly source: Source;
  private buffer: SourceBuffer | null = null;
  private steps: Step[] = [];
  private waiting = 0;
  private length: number | null = null;
  /** Position of the playhead, in seconds. */
  private time = 0;
  /**
   * Times from which the buffered media can be decoded. Media may be removed only up to one of
   * these.
   */
  private entrances: number[] = [];
  private wasEmpty = true;
  private closed = false;
  private retry: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly events: Events) {
    this.source = new (sourceClass() ?? MediaSource)();
    this.source.addEventListener('sourceopen', () => this.run());
    const { handle } = this.source;
    // In a page, a MediaSource is attached by its URL. Handles exist in fewer browsers, and work in
    // even fewer.
    if (typeof document === 'undefined' && handle) events.opened(handle, [handle as Transferable]);
    else events.opened(this.source, []);
  }

  decodes(mime: string): boolean {
    return sourceClass()?.isTypeSupported(mime) ?? false;
  }

  /** Notes the playhead's position. */
  at(time: number): void {
    this.time = time;
  }

  duration(seconds: number | null): void {
    this.length = seconds;
  }

  /** Whether nothing is buffered. */
  get isEmpty(): boolean {
    return this.end() === null;
  }

  /** Where the newest buffered media end, in seconds. */
  end(): number | null {
    const buffered = this.source.readyState === 'closed' ? null : this.buffer?.buffered;
    return buffered?.length ? buffered.end(buffered.length - 1) : null;
  }

  /** Notes the header of all media that are added from here on. */
  begin(bytes: Uint8Array<ArrayBuffer>, mime: string): void {
    this.push({ is: 'header', bytes, mime });
  }

  /** Adds a chunk or segment with decode time `time`. */
  add(bytes: Uint8Array<ArrayBuffer>, time: number, entrance: boolean): void {
    if (this.waiting > MOST_WAITING) {
      this.events.broken('the browser takes no more');
      return;
    }
    if (entrance) this.entrances.push(time);
    this.push({ is: 'media', bytes });
  }

  /** Removes everything. The last header is valid for media added later. */
  empty(): void {
    const header = this.steps.findLast(({ is }) => is === 'header');
    this.steps = header ? [header] : [];
    this.waiting = 0;
    this.entrances = [];
    this.push({ is: 'empty' });
  }

  /** Notes that nothing more is added. */
  finish(): void {
    this.push({ is: 'finish' });
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.retry);
    this.steps = [];
  }

  private push(step: Step): void {
    if (step.is === 'media') this.waiting += step.bytes.length;
    this.steps.push(step);
    this.run();
  }

  /** Takes the next step if the SourceBuffer is ready. */
  private run(): void {
    const { source, steps } = this;
    const [step] = steps;
    if (!step || this.closed || this.buffer?.updating || source.readyState === 'closed') return;
    try {
      if (step.is === 'header') this.describe(step.mime);
      if (this.buffer) {
        this.carryOut(step, this.buffer);
      } else {
        steps.shift();
        this.run();
      }
    } catch (error) {
      if (error instanceof DOMException && error.name === 'QuotaExceededError') this.makeRoom();
      else this.events.broken(`${error}`);
    }
  }

  /** Makes sure that there is a SourceBuffer for this type. */
  private describe(mime: string): void {
    if (!this.buffer) {
      this.buffer = this.source.addSourceBuffer(mime);
      this.buffer.addEventListener('updateend', () => this.updated());
      this.buffer.addEventListener('error', () => this.events.broken('the browser cannot decode the media'));
    } else if (mime !== this.mime) {
      this.buffer.changeType(mime);
    }
    this.mime = mime;
  }

  private carryOut(step: Step, buffer: SourceBuffer): void {
    const { source, steps } = this;
    switch (step.is) {
      case 'header':
        buffer.appendBuffer(step.bytes);
        steps.shift();
        break;
      case 'media': {
        this.stretch(buffer.buffered.length === 0);
        const [bytes, count] = this.together();
        buffer.appendBuffer(bytes);
        steps.splice(0, count);
        this.waiting -= bytes.length;
        break;
      }
      case 'empty':
        steps.shift();
        this.wasEmpty = true;
        // Ends a half-appended segment and the continuity of frames.
        if (source.readyState === 'open') buffer.abort();
        if (buffer.buffered.length > 0) buffer.remove(0, Number.POSITIVE_INFINITY);
        else this.run();
        break;
      case 'finish':
        steps.shift();
        if (source.readyState === 'open') source.endOfStream();
    }
  }

  /** The waiting chunks that can be appended together, and their number. */
  private together(): [Uint8Array<ArrayBuffer>, number] {
    const row: Uint8Array<ArrayBuffer>[] = [];
    let size = 0;
    for (const step of this.steps) {
      if (step.is !== 'media' || (row.length > 0 && size + step.bytes.length > MOST_AT_ONCE)) break;
      row.push(step.bytes);
      size += step.bytes.length;
    }
    const [first] = row;
    if (first && row.length === 1) return [first, 1];
    const bytes = new Uint8Array(size);
    let at = 0;
    for (const part of row) {
      bytes.set(part, at);
      at += part.length;
    }
    return [bytes, row.length];
  }

  private updated(): void {
    const { buffer, source } = this;
    if (!buffer || this.closed || source.readyState === 'closed') return;
    const { buffered } = buffer;
    // `added` is told only after everything that waited with the first chunk has been appended: playback
    // may start at the end.
    if (buffered.length > 0 && (!this.wasEmpty || !this.steps.some(({ is }) => is === 'media'))) {
      this.events.added(this.wasEmpty);
      this.wasEmpty = false;
    }
    // An earlier event has already started the next step.
    if (buffer.updating) return;
    if (!this.forget(buffer, 2 * BEHIND, BEHIND)) this.run();
  }

  /**
   * Sets the duration that was announced. The source may be longer while media are buffered, and
   * shorter after its end.
   */
  private stretch(isEmpty: boolean): void {
    const { source, length } = this;
    if (length === null || source.readyState !== 'open') return;
    if (source.duration < length || (isEmpty && source.duration !== length)) source.duration = length;
  }

  /**
   * Removes media more than `keep` behind the playhead, once there are more than `most`. Returns
   * whether any are removed.
   */
  private forget(buffer: SourceBuffer, most: number, keep: number): boolean {
    const { buffered } = buffer;
    if (buffered.length === 0 || buffered.start(0) >= this.time - most) return false;
    // Removing a frame also removes the frames that depend on it, so the cut is before a keyframe.
    const entrance = this.entrances.findLast((time) => time <= this.time - keep);
    if (entrance === undefined || entrance - BEFORE <= buffered.start(0)) return false;
    this.entrances = this.entrances.filter((time) => time >= entrance);
    buffer.remove(0, entrance - BEFORE);
    return true;
  }

  /** Makes room in a full browser: removes media that were played. If there are none, waits. */
  private makeRoom(): void {
    if (this.buffer && this.forget(this.buffer, LEAST_BEHIND, LEAST_BEHIND)) return;
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.run(), TRY_AGAIN);
  }
}
