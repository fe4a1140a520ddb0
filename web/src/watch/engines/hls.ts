import Hls, { type ErrorData } from 'hls.js';
import type { Failure } from '../condition';
import { type EngineStats, httpFailure, type StartEngine } from './engine';

/** How many target durations a low-latency viewer may fall behind before being taken back to live. */
const MOST_BEHIND = 3;

/** HLS by hls.js, with or without low latency. */
export const startHls: StartEngine = (video, url, { lowLatency, recorded }, events) => {
  const hls = new Hls({
    lowLatencyMode: lowLatency,
    // Fragmented MP4 is only looked at on its way to the browser; a worker would add a hop and gain nothing.
    enableWorker: false,
    // Without liveSyncDuration hls.js holds the server's PART-HOLD-BACK (HOLD-BACK without low latency).
    maxLiveSyncPlaybackRate: lowLatency ? 1.1 : 1,
    // A stall moves the target away from live by this much, bounded by one target duration.
    liveSyncOnStallIncrease: lowLatency ? 0.25 : 1,
    liveMaxLatencyDurationCount: lowLatency ? MOST_BEHIND : Number.POSITIVE_INFINITY,
    backBufferLength: 30,
    startLevel: -1,
    // A missing or late answer is retried at once: at this distance from live a second is everything.
    ...(lowLatency ? { highBufferWatchdogPeriod: 1, detectStallWithCurrentTimeMs: 750 } : {}),
  });
  let mediaRecoveries = 0;

  hls.on(Hls.Events.MANIFEST_PARSED, () => events.manifest());
  hls.on(Hls.Events.ERROR, (_event, data) => {
    if (!data.fatal) return;
    // A decoder that chokes on one picture recovers by starting over; once is tried, more would loop.
    if (data.type === Hls.ErrorTypes.MEDIA_ERROR && !isCodecError(data) && mediaRecoveries === 0) {
      mediaRecoveries += 1;
      hls.recoverMediaError();
      return;
    }
    events.failed(failureOf(data));
  });
  hls.attachMedia(video);
  hls.loadSource(url);

  return {
    name: `hls.js ${Hls.version}`,
    stats(): EngineStats {
      const level = hls.levels[hls.currentLevel] ?? hls.levels[hls.loadLevel];
      const live = hls.latestLevelDetails?.live === true && !recorded;
      return {
        shownAt: live ? (hls.playingDate?.getTime() ?? null) : null,
        latency: live && hls.latency > 0 ? hls.latency : null,
        targetLatency: live ? hls.targetLatency : null,
        bitrate: level?.bitrate ?? null,
        frameRate: level?.frameRate || null,
        codec: level ? [level.videoCodec, level.audioCodec].filter(Boolean).join(', ') || null : null,
      };
    },
    goLive() {
      if (lowLatency) hls.config.liveMaxLatencyDurationCount = MOST_BEHIND;
      if (hls.liveSyncPosition !== null) video.currentTime = hls.liveSyncPosition;
    },
    hold() {
      hls.config.liveMaxLatencyDurationCount = Number.POSITIVE_INFINITY;
    },
    destroy() {
      hls.destroy();
    },
  };
};

function isCodecError(data: ErrorData): boolean {
  return (
    data.details === Hls.ErrorDetails.MANIFEST_INCOMPATIBLE_CODECS_ERROR ||
    data.details === Hls.ErrorDetails.BUFFER_ADD_CODEC_ERROR ||
    data.details === Hls.ErrorDetails.BUFFER_INCOMPATIBLE_CODECS_ERROR
  );
}

function failureOf(data: ErrorData): Failure {
  const detail = [data.details, data.error?.message].filter(Boolean).join(': ');
  if (isCodecError(data)) {
    return { kind: 'codec', what: 'This browser decodes none of the codecs the stream is sent in.', detail };
  }
  if (data.type === Hls.ErrorTypes.NETWORK_ERROR) {
    if (
      data.details === Hls.ErrorDetails.MANIFEST_PARSING_ERROR ||
      data.details === Hls.ErrorDetails.LEVEL_PARSING_ERROR
    ) {
      return { kind: 'media', what: 'The playlist the server sent cannot be read.', detail };
    }
    const what = data.frag || data.part ? 'A segment' : 'The playlist';
    return { kind: 'network', what: httpFailure(what, data.response?.code), detail };
  }
  if (data.type === Hls.ErrorTypes.MEDIA_ERROR) {
    return { kind: 'media', what: 'The browser could not decode the stream.', detail };
  }
  return { kind: 'engine', what: 'The player met an error it cannot mend.', detail };
}
