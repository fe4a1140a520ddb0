/** So much is kept behind the picture, in seconds, and removed when it is twice that. */
const BEHIND = 10;
/** When the browser has no more room. */
const LEAST_BEHIND = 1;
/** Chunks that wait are appended together up to so many bytes. */
const MOST_AT_ONCE = 1 << 20;
/** What may wait for room in the browser, in bytes. */
const MOST_WAITING = 64 << 20;
/** No picture lasts so short; and how far presentation may run ahead of decoding, in seconds. */
const BEFORE = 0.05;
/** How long until a full buffer is tried again, in milliseconds. */
const TRY_AGAIN = 200;

interface Events {
  /** A source for the picture: a MediaSourceHandle in a worker, the MediaSource itself in the page. */
  opened(source: unknown, transfer: Transferable[]): void;
  /** Something was added; `first` where nothing was buffered before. */
  added(first: boolean): void;
  /** Only a new source helps. */
  broken(reason: string): void;
}

type Step =
  | { is: 'header'; bytes: Uint8Array<ArrayBuffer>; mime: string }
  | { is: 'media'; bytes: Uint8Array<ArrayBuffer> }
  | { is: 'empty' }
  | { is: 'finish' };

type Source = MediaSource & { handle?: unknown };

/** The browser's MediaSource; ManagedMediaSource where there is no other (iPhone). */
export function sourceClass(): typeof MediaSource | undefined {
  const scope = globalThis as { MediaSource?: typeof MediaSource; ManagedMediaSource?: typeof MediaSource };
  return scope.MediaSource ?? scope.ManagedMediaSource;
}

/** A MediaSource with one SourceBuffer, and what waits to be appended to it. */
export class Store {
  /** What the SourceBuffer takes now. */
  mime = '';
  private readonly source: Source;
  private buffer: SourceBuffer | null = null;
  private steps: Step[] = [];
  private waiting = 0;
  private length: number | null = null;
  /** Where the picture is, in seconds. */
  private time = 0;
  /** Moments from which on what is buffered can be decoded: it may be cut off only in front of one. */
  private entrances: number[] = [];
  private wasEmpty = true;
  private closed = false;
  private retry: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly events: Events) {
    const Class = sourceClass();
    if (!Class) throw new Error('no Media Source Extensions');
    this.source = new Class();
    this.source.addEventListener('sourceopen', () => this.run());
    const { handle } = this.source;
    // In a page a MediaSource is attached by its address; its handle exists in some browsers, and works in fewer.
    if (typeof document === 'undefined' && handle) events.opened(handle, [handle as Transferable]);
    else events.opened(this.source, []);
  }

  decodes(mime: string): boolean {
    return sourceClass()?.isTypeSupported(mime) ?? false;
  }

  /** Where the picture is. */
  at(time: number): void {
    this.time = time;
  }

  duration(seconds: number | null): void {
    this.length = seconds;
  }

  /** Nothing is buffered, and nothing waits to be. */
  get isEmpty(): boolean {
    return this.end() === null;
  }

  /** Where the newest that is buffered ends, in seconds. */
  end(): number | null {
    const buffered = this.source.readyState === 'closed' ? null : this.buffer?.buffered;
    return buffered?.length ? buffered.end(buffered.length - 1) : null;
  }

  /** What is added from here on is described by this header. */
  begin(bytes: Uint8Array<ArrayBuffer>, mime: string): void {
    this.push({ is: 'header', bytes, mime });
  }

  /** Adds a chunk, or segment, whose decode time is `time`. */
  add(bytes: Uint8Array<ArrayBuffer>, time: number, entrance: boolean): void {
    if (this.waiting > MOST_WAITING) {
      this.events.broken('the browser takes no more');
      return;
    }
    if (entrance) this.entrances.push(time);
    this.push({ is: 'media', bytes });
  }

  /** Removes everything. What is added later is described by the last header. */
  empty(): void {
    const header = this.steps.findLast(({ is }) => is === 'header');
    this.steps = header ? [header] : [];
    this.waiting = 0;
    this.entrances = [];
    this.push({ is: 'empty' });
  }

  /** Nothing more is added. */
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

  /** Takes the next step if the SourceBuffer can. */
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
      else this.events.broken(String(error));
    }
  }

  /** Sees to it that there is a SourceBuffer, for this. */
  private describe(mime: string): void {
    if (!this.buffer) {
      this.buffer = this.source.addSourceBuffer(mime);
      this.buffer.addEventListener('updateend', () => this.updated());
      this.buffer.addEventListener('error', () => this.events.broken('the browser does not take the media'));
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
        // Ends what was begun: half a segment, and the continuity of the frames.
        if (source.readyState === 'open') buffer.abort();
        if (buffer.buffered.length > 0) buffer.remove(0, Number.POSITIVE_INFINITY);
        else this.run();
        break;
      case 'finish':
        steps.shift();
        if (source.readyState === 'open') source.endOfStream();
    }
  }

  /** The chunks that wait in a row, and how many they are. */
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
    // All that had come when the first was appended comes before the picture is told: it may start at its end.
    if (buffered.length > 0 && (!this.wasEmpty || !this.steps.some(({ is }) => is === 'media'))) {
      this.events.added(this.wasEmpty);
      this.wasEmpty = false;
    }
    // What came before this was heard of has begun the next step already.
    if (buffer.updating) return;
    if (!this.forget(buffer, 2 * BEHIND, BEHIND)) this.run();
  }

  /** Has the source be as long as was said; it may be longer by what is buffered, and shorter after its end. */
  private stretch(isEmpty: boolean): void {
    const { source, length } = this;
    if (length === null || source.readyState !== 'open') return;
    if (source.duration < length || (isEmpty && source.duration !== length)) source.duration = length;
  }

  /** Removes what is more than `keep` behind the picture once it is more than `most`; whether anything is. */
  private forget(buffer: SourceBuffer, most: number, keep: number): boolean {
    const { buffered } = buffer;
    if (buffered.length === 0 || buffered.start(0) >= this.time - most) return false;
    // Removing a picture removes all that build on it: cut in front of one that builds on none.
    const entrance = this.entrances.findLast((time) => time <= this.time - keep);
    if (entrance === undefined || entrance - BEFORE <= buffered.start(0)) return false;
    this.entrances = this.entrances.filter((time) => time >= entrance);
    buffer.remove(0, entrance - BEFORE);
    return true;
  }

  /** The browser's memory is full: what was seen goes, else what comes waits until something was. */
  private makeRoom(): void {
    if (this.buffer && this.forget(this.buffer, LEAST_BEHIND, LEAST_BEHIND)) return;
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.run(), TRY_AGAIN);
  }
}
