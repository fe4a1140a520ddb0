import { FileFailure } from './failure';
import type { Reader, Segment } from './reader';

/** Nothing more is asked for while so much is buffered ahead of the picture, in seconds. */
export const AHEAD = 15;
/** Behind the picture so much is kept for a small step back, in seconds, and removed when it is twice that. */
const BEHIND = 10;
/** When the browser has no room even for this much ahead, the file cannot be played, in seconds. */
const LEAST_AHEAD = 2;
/** So little is buffered that the picture is about to stop, in seconds. */
const ALMOST_OUT = 0.3;
/** How long until the buffer is looked at again, in milliseconds. */
const LOOK_AGAIN = 200;
/** No picture lasts so short, in seconds. */
const ROUNDING = 0.002;
/** A hole in front of the picture that is stepped over although it can be seen, in seconds. */
const HOLE = 0.05;

export type MediaSourceClass = { new (): MediaSource; isTypeSupported(mime: string): boolean };

/**
 * Feeds one SourceBuffer, with picture and sound, from a file. What is buffered is always one stretch of the
 * file, which grows at its end: a jump to outside of it empties the buffer and begins anew there. So memory is
 * bounded by `AHEAD` and `BEHIND`, or by what the browser allows if that is less.
 */
export class Feeder {
  private buffer: SourceBuffer | null = null;
  private readonly source: MediaSource;
  private readonly address: string;
  /** Ends what is being fetched: a jump, another audio track, the end of the visit. */
  private run = new AbortController();
  private running: Promise<void> = Promise.resolve();
  /** Moments, in seconds, from which on what is buffered can be decoded: it may be cut off only in front of one. */
  private entrances: number[] = [];
  /** Whether what is buffered belongs to the present run: until then a hole is only what was not fetched yet. */
  private fed = false;
  /** Less than AHEAD where the browser has less room. */
  private goal = AHEAD;

  constructor(
    private readonly video: HTMLVideoElement,
    private readonly reader: Reader,
    mediaSource: MediaSourceClass,
    private readonly failed: (error: unknown) => void,
  ) {
    this.source = new mediaSource();
    this.address = URL.createObjectURL(this.source);
    // Safari's ManagedMediaSource opens only where the picture cannot be sent to another device.
    video.disableRemotePlayback = true;
    video.src = this.address;
    video.addEventListener('seeking', this.jumped);
    video.addEventListener('waiting', this.stepOverHole);
  }

  /** Begins at `time`, in seconds. */
  start(time: number): void {
    this.again(time, async (signal) => {
      if (this.source.readyState !== 'open') await happening(this.source, ['sourceopen'], signal);
      URL.revokeObjectURL(this.address);
      const { reader, source } = this;
      if (reader.duration !== null) source.duration = reader.duration;
      this.buffer = source.addSourceBuffer(reader.mime);
      if (time > 0) this.video.currentTime = time;
    });
  }

  /** Goes on with what the reader now has chosen, from the present moment. */
  change(choose: (signal: AbortSignal) => Promise<void>): void {
    this.again(this.video.currentTime, async (signal) => {
      await choose(signal);
      this.buffer?.changeType?.(this.reader.mime);
    });
  }

  destroy(): void {
    this.run.abort();
    this.video.removeEventListener('seeking', this.jumped);
    this.video.removeEventListener('waiting', this.stepOverHole);
    this.video.removeAttribute('src');
    this.video.load();
    URL.revokeObjectURL(this.address);
  }

  private readonly jumped = () => {
    if (this.buffer === null || this.holds(this.video.currentTime)) return;
    this.again(this.video.currentTime, async () => undefined);
  };

  /** Ends the present run and begins another at `time`. */
  private again(time: number, prepare: (signal: AbortSignal) => Promise<void>): void {
    this.run.abort();
    const run = new AbortController();
    this.run = run;
    this.fed = false;
    const { signal } = run;
    this.running = this.running.then(async () => {
      try {
        signal.throwIfAborted();
        await prepare(signal);
        await this.feed(time, signal);
      } catch (error) {
        if (!signal.aborted) this.failed(error);
      }
    });
  }

  /** Fills the buffer from `time` on, and keeps it filled until the end of the file. */
  private async feed(time: number, signal: AbortSignal): Promise<void> {
    const { buffer, reader, source } = this;
    if (!buffer) return;
    await this.settled(buffer, signal);
    await this.remove(buffer, 0, Number.POSITIVE_INFINITY, signal);
    this.entrances = [];
    buffer.timestampOffset = reader.timestampOffset;
    await this.append(buffer, reader.header(), signal);
    await reader.seek(time, signal);
    for (;;) {
      await this.room(signal);
      const segment = await this.segment(reader, signal);
      signal.throwIfAborted();
      if (segment === null) break;
      this.entrances.push(...segment.entrances);
      await this.append(buffer, segment.bytes, signal);
      await this.forget(buffer, 2 * BEHIND, BEHIND, signal);
      this.fed = true;
      this.stepOverHole();
    }
    if (source.readyState === 'open') source.endOfStream();
    this.stepOverHole();
  }

  /** The next segment. A failure is not told as long as there is something to play, and may pass until then. */
  private async segment(reader: Reader, signal: AbortSignal): Promise<Segment | null> {
    for (;;) {
      try {
        return await reader.next(signal);
      } catch (error) {
        signal.throwIfAborted();
        const mayPass = error instanceof FileFailure && error.passing;
        do {
          const stands = this.video.readyState < HTMLMediaElement.HAVE_FUTURE_DATA;
          if (stands || this.ahead() < ALMOST_OUT) throw error;
          await pause(LOOK_AGAIN, signal);
        } while (!mayPass);
      }
    }
  }

  /** Waits until there is less than enough in front of the picture. */
  private async room(signal: AbortSignal): Promise<void> {
    while (this.ahead() >= this.goal) await pause(LOOK_AGAIN, signal);
  }

  private async append(
    buffer: SourceBuffer,
    bytes: Uint8Array<ArrayBuffer>,
    signal: AbortSignal,
  ): Promise<void> {
    for (;;) {
      await this.settled(buffer, signal);
      try {
        buffer.appendBuffer(bytes);
        break;
      } catch (error) {
        if (!(error instanceof DOMException) || error.name !== 'QuotaExceededError') throw error;
      }
      // Full: what was seen goes first; then less is kept ahead from now on, and there is room when some was seen.
      if (await this.forget(buffer, 1, 0.5, signal)) continue;
      const ahead = this.ahead();
      if (ahead < LEAST_AHEAD) {
        throw new FileFailure(
          'media',
          'The browser has too little memory for this file.',
          `full with ${ahead.toFixed(1)} s ahead`,
        );
      }
      this.goal = Math.max(LEAST_AHEAD, Math.min(this.goal, ahead - 1));
      await this.room(signal);
      await pause(LOOK_AGAIN, signal);
    }
    await this.settled(buffer, signal);
  }

  /** Removes what is more than `keep` behind the picture once it is more than `most`; whether anything was. */
  private async forget(
    buffer: SourceBuffer,
    most: number,
    keep: number,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { buffered } = buffer;
    const { currentTime } = this.video;
    if (buffered.length === 0 || buffered.start(0) >= currentTime - most) return false;
    // Removing a picture removes all that build on it: cut between two groups of pictures, a little before the
    // second begins, since times are rounded.
    const entrance = this.entrances.findLast((time) => time <= currentTime - keep);
    if (entrance === undefined || entrance - ROUNDING <= buffered.start(0)) return false;
    await this.remove(buffer, 0, entrance - ROUNDING, signal);
    this.entrances = this.entrances.filter((time) => time >= entrance);
    return true;
  }

  private async remove(buffer: SourceBuffer, from: number, to: number, signal: AbortSignal): Promise<void> {
    if (buffer.buffered.length === 0) return;
    buffer.remove(from, to);
    await this.settled(buffer, signal);
  }

  /** Waits until the buffer takes the next operation. */
  private async settled(buffer: SourceBuffer, signal: AbortSignal): Promise<void> {
    while (buffer.updating) {
      const event = await happening(buffer, ['updateend', 'error'], signal);
      if (event.type === 'error') {
        const detail = this.video.error?.message ?? '';
        throw new FileFailure('media', 'The browser could not decode the file.', detail);
      }
    }
    signal.throwIfAborted();
  }

  private ahead(): number {
    const { buffered, currentTime } = this.video;
    if (this.buffer === null || buffered.length === 0) return 0;
    const end = buffered.end(buffered.length - 1);
    return Math.max(0, end - Math.max(currentTime, buffered.start(0)));
  }

  private holds(time: number): boolean {
    const { buffered } = this.video;
    for (let i = 0; i < buffered.length; i++) {
      if (buffered.start(i) <= time + HOLE && time < buffered.end(i)) return true;
    }
    return false;
  }

  /** A file may have nothing for the present moment: no picture at its beginning, a pause between two fragments. */
  private readonly stepOverHole = () => {
    const { buffered, currentTime, ended } = this.video;
    if (!this.fed || ended || this.holds(currentTime)) return;
    for (let i = 0; i < buffered.length; i++) {
      if (buffered.start(i) > currentTime) {
        this.video.currentTime = buffered.start(i);
        return;
      }
    }
  };
}

/** Waits for one of the events. */
function happening(target: EventTarget, events: readonly string[], signal: AbortSignal): Promise<Event> {
  return new Promise((resolve, reject) => {
    const settle = () => {
      for (const event of events) target.removeEventListener(event, happened);
      signal.removeEventListener('abort', aborted);
    };
    const happened = (event: Event) => {
      settle();
      resolve(event);
    };
    const aborted = () => {
      settle();
      reject(signal.reason);
    };
    if (signal.aborted) return reject(signal.reason);
    for (const event of events) target.addEventListener(event, happened);
    signal.addEventListener('abort', aborted);
  });
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const aborted = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', aborted);
      resolve();
    }, milliseconds);
    signal.addEventListener('abort', aborted, { once: true });
  });
}
