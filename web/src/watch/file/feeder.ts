import { FileFailure } from './failure';
import type { Reader, Segment } from './reader';

/** Nothing more is requested while this much is buffered ahead of the playhead, in seconds. */
export const AHEAD = 15;
/**
 * This much is kept behind the playhead for short jumps back, in seconds. It is cut back to this
 * when it is twice as much.
 */
const BEHIND = 10;
/** If the browser has no room even for this much ahead, the file cannot be played, in seconds. */
const LEAST_AHEAD = 2;
/** With less than this ahead, playback is about to stop, in seconds. */
const ALMOST_OUT = 0.3;
/** Time between looks at the buffer, in milliseconds. */
const LOOK_AGAIN = 200;
/** Shorter than any frame, in seconds. */
const ROUNDING = 0.002;
/** A playhead that is at most this far before a range counts as in the range, in seconds. */
const HOLE = 0.05;

export type MediaSourceClass = { new (): MediaSource; isTypeSupported(mime: string): boolean };

/**
 * Feeds one SourceBuffer with video and audio from a file. The buffer always contains one stretch
 * of the file, which grows at its end. A jump to outside of it empties the buffer and begins there.
 * So memory is limited by `AHEAD` and `BEHIND`, or by the browser if that is less.
 */
export class Feeder {
  private buffer: SourceBuffer | null = null;
  private readonly source: MediaSource;
  private readonly address: string;
  /**
   * Aborts the present run: at a jump, at a change of the audio track, or at the end of the visit.
   */
  private run = new AbortController();
  private running: Promise<void> = Promise.resolve();
  /**
   * Times from which the buffered media can be decoded, in seconds. Media may be removed only up to
   * one of these.
   */
  private entrances: number[] = [];
  /**
   * Whether the buffer has media of the present run. Before that, a hole only means that nothing
   * was fetched yet.
   */
  private fed = false;
  /** Smaller than AHEAD if the browser has less room. */
  private goal = AHEAD;

  constructor(
    private readonly video: HTMLVideoElement,
    private readonly reader: Reader,
    mediaSource: MediaSourceClass,
    private readonly failed: (error: unknown) => void,
  ) {
    this.source = new mediaSource();
    this.address = URL.createObjectURL(this.source);
    // Safari's ManagedMediaSource opens only if remote playback is disabled.
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

  /** Goes on from the present time with the tracks that `choose` selects. */
  change(choose: (signal: AbortSignal) => Promise<void>): void {
    this.again(this.video.currentTime, async (signal) => {
      await choose(signal);
      const { buffer } = this;
      if (buffer === null) return;
      // The browser may still be taking media of the run before.
      await this.settled(buffer, signal);
      buffer.changeType?.(this.reader.mime);
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

  /** Fills the buffer from `time` on, and keeps it filled to the end of the file. */
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

  /**
   * Gets the next segment. Reports a failure only when there is nothing left to play; before that,
   * it tries again.
   */
  private async segment(reader: Reader, signal: AbortSignal): Promise<Segment | null> {
    for (;;) {
      try {
        return await reader.next(signal);
      } catch (error) {
        signal.throwIfAborted();
        const mayPass = error instanceof FileFailure && error.passing;
        do {
          // `readyState` does not tell: a busy browser takes a while to notice what was appended.
          if (!this.holds(this.video.currentTime) || this.ahead() < ALMOST_OUT) throw error;
          await pause(LOOK_AGAIN, signal);
        } while (!mayPass);
      }
    }
  }

  /** Waits until there is room in front of the playhead. */
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
      // The buffer is full. First, played media are removed. If there are none, the goal becomes
      // smaller, and there is room when some media have been played.
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

  /**
   * Removes media more than `keep` behind the playhead, once there are more than `most`. Returns
   * whether any were removed.
   */
  private async forget(
    buffer: SourceBuffer,
    most: number,
    keep: number,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { buffered } = buffer;
    const { currentTime } = this.video;
    if (buffered.length === 0 || buffered.start(0) >= currentTime - most) return false;
    // Removing a frame also removes the frames that depend on it. So the cut is between two groups
    // of pictures, a little before the second, because times are rounded.
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

  /** Waits until the buffer can take the next operation. */
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

  /**
   * A file may have no media for the present time: no frame at its beginning, or a gap between
   * two fragments.
   */
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
