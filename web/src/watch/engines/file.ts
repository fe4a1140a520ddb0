import { trackLabel } from '../../shared/format';
import { FileFailure } from '../file/failure';
import { Feeder, type MediaSourceClass } from '../file/feeder';
import { Ranges } from '../file/ranges';
import { Reader } from '../file/reader';
import { type Choices, type EngineStats, NO_CHOICES, NO_STATS, type StartEngine } from './engine';

/** Plays an MP4 file by range requests. The page converts it for MediaSource. */
export const startFile: StartEngine = (video, url, { startAt, credentials }, events) => {
  const mediaSource = mediaSourceClass();
  const ended = new AbortController();
  let reader: Reader | null = null;
  let feeder: Feeder | null = null;

  const failed = (error: unknown) => {
    if (ended.signal.aborted) return;
    if (error instanceof FileFailure) {
      const { kind, what, detail, refused } = error;
      events.failed({ kind, what, detail, ...(refused ? { refusedBy: url } : {}) });
    } else {
      const detail = [String(error), video.error?.message].filter(Boolean).join('; ');
      events.failed({ kind: 'media', what: 'The browser could not play the file.', detail });
    }
  };
  // The browser tells that it cannot decode media when it reaches them, and not when they are
  // appended.
  const undecodable = () =>
    failed(new FileFailure('media', 'The browser could not decode the file.', video.error?.message ?? ''));

  const open = async () => {
    if (!mediaSource) throw new FileFailure('codec', 'This browser has no Media Source Extensions.', '');
    const decodes = (mime: string) => mediaSource.isTypeSupported(mime);
    const opened = await Reader.open(new Ranges(url, credentials), decodes, ended.signal);
    if (ended.signal.aborted) return;
    reader = opened;
    events.manifest();
    video.addEventListener('error', undecodable);
    feeder = new Feeder(video, opened, mediaSource, failed);
    feeder.start(startAt);
  };
  open().catch(failed);

  return {
    name: 'MediaSource',
    stats(): EngineStats {
      if (!reader) return NO_STATS;
      const codec = reader.chosen.map((track) => track.codec).join(', ');
      return { ...NO_STATS, bitrate: reader.bitrate, frameRate: reader.frameRate, codec };
    },
    choices(): Choices {
      if (!reader) return NO_CHOICES;
      const audio = reader.tracks.filter(({ kind }) => kind === 'audio');
      return {
        ...NO_CHOICES,
        audio: audio.map(({ id, name, language }, i) => ({
          id,
          label: trackLabel(named(name), language, i),
        })),
        chosenAudio: reader.chosen.find(({ kind }) => kind === 'audio')?.id ?? null,
      };
    },
    chooseAudio(id) {
      const chooser = reader;
      feeder?.change(async (signal) => chooser?.choose(id, signal));
    },
    chooseSubtitles() {
      // A plain MP4 has no subtitles that a browser shows.
    },
    goLive() {
      // A file is not live.
    },
    hold() {
      // Nothing to do: a file does not move on.
    },
    destroy() {
      ended.abort();
      video.removeEventListener('error', undecodable);
      feeder?.destroy();
    },
  };
};

/**
 * A track's name. Empty for the default names that programs write: `SoundHandler`, `ISO Media
 * file…`.
 */
function named(name: string): string {
  return /handler|iso media/i.test(name) ? '' : name;
}

function mediaSourceClass(): MediaSourceClass | undefined {
  const scope = globalThis as { ManagedMediaSource?: MediaSourceClass; MediaSource?: MediaSourceClass };
  return scope.MediaSource ?? scope.ManagedMediaSource;
}
