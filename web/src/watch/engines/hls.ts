import Hls, { type ErrorData, type LevelDetails } from 'hls.js';
import { trackLabel } from '../../shared/format';
import type { Failure } from '../condition';
import { LOW_LATENCY, Pace, WHOLE_SEGMENTS } from '../pace';
import { Standstill } from '../standstill';
import {
  type Choices,
  type EngineStats,
  httpFailure,
  NO_CHOICES,
  NO_STATS,
  type StartEngine,
} from './engine';

/** How many target durations a low-latency viewer may fall behind before being taken back to live. */
const MOST_BEHIND = 3;

/** How often the picture is looked at for standing still, in milliseconds. */
const LOOK_EVERY = 50;

/** Events after which the buffer's past says nothing about its future. */
const INTERRUPTIONS = ['seeking', 'pause', 'waiting'] as const;

/** HLS by hls.js, with or without low latency. */
export const startHls: StartEngine = (video, url, { lowLatency, recorded, startAt }, events) => {
  const hls = new Hls({
    lowLatencyMode: lowLatency,
    // Fragmented MP4 is only looked at on its way to the browser; a worker would add a hop and gain nothing.
    enableWorker: false,
    // Without liveSyncDuration hls.js holds the server's PART-HOLD-BACK (HOLD-BACK without low latency).
    // Pace does the catching up; hls.js leaves the rate alone when it may not raise it.
    maxLiveSyncPlaybackRate: 1,
    // A stall moves the target away from live by this much, bounded by one target duration.
    liveSyncOnStallIncrease: lowLatency ? 0.25 : 1,
    backBufferLength: 30,
    startLevel: -1,
    ...(recorded ? { startPosition: startAt } : {}),
    // A missing or late answer is retried at once: at this distance from live a second is everything.
    ...(lowLatency ? { highBufferWatchdogPeriod: 1, detectStallWithCurrentTimeMs: 750 } : {}),
  });
  // Set behind the constructor, which allows it only together with a distance of our own instead of the server's.
  const stayClose = () => {
    if (lowLatency) hls.config.liveMaxLatencyDurationCount = MOST_BEHIND;
  };
  stayClose();
  let mediaRecoveries = 0;
  const pace = new Pace(lowLatency ? LOW_LATENCY : WHOLE_SEGMENTS);
  const steer = () => {
    const { targetLatency } = hls;
    if (video.seeking || video.paused || hls.latency <= 0 || targetLatency === null) return;
    const buffer = hls.mainForwardBufferInfo?.len ?? 0;
    const rate = pace.rate(performance.now(), hls.latency, targetLatency, buffer);
    if (video.playbackRate !== rate) video.playbackRate = rate;
    if (pace.isTooFar() && hls.liveSyncPosition !== null && hls.liveSyncPosition > video.currentTime)
      video.currentTime = hls.liveSyncPosition;
  };
  const forget = () => {
    pace.reset();
    video.playbackRate = 1;
  };
  if (!recorded) {
    video.addEventListener('timeupdate', steer);
    for (const event of INTERRUPTIONS) video.addEventListener(event, forget);
  }
  const unwatch = lowLatency && !recorded ? goOnWhereItStands(hls, video) : () => undefined;

  hls.on(Hls.Events.MANIFEST_PARSED, () => events.manifest());
  if (!recorded) {
    const look = (_event: string, { details }: { details: LevelDetails }) => {
      if (!details.live) events.trackOver();
    };
    hls.on(Hls.Events.LEVEL_LOADED, look);
    hls.on(Hls.Events.AUDIO_TRACK_LOADED, look);
  }
  hls.on(Hls.Events.ERROR, (_event, data) => {
    if (!recorded && isPlaylistGone(data)) events.trackOver();
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
        ...NO_STATS,
        shownAt: live ? (hls.playingDate?.getTime() ?? null) : null,
        latency: live && hls.latency > 0 ? hls.latency : null,
        targetLatency: live ? hls.targetLatency : null,
        // A file's average is known; a broadcast's is what it has been so far.
        bitrate: (recorded ? level?.averageBitrate : level?.bitrate) ?? null,
        frameRate: level?.frameRate || null,
        codec: level ? [level.videoCodec, level.audioCodec].filter(Boolean).join(', ') || null : null,
      };
    },
    choices(): Choices {
      return {
        ...NO_CHOICES,
        audio: hls.audioTracks.map(({ name, lang }, id) => ({ id, label: trackLabel(name, lang ?? '', id) })),
        chosenAudio: hls.audioTrack < 0 ? null : hls.audioTrack,
        subtitles: hls.subtitleTracks.map(({ name, lang }, id) => ({
          id,
          label: trackLabel(name, lang ?? '', id),
        })),
        chosenSubtitles: hls.subtitleTrack < 0 ? null : hls.subtitleTrack,
      };
    },
    chooseAudio(id) {
      hls.audioTrack = id;
    },
    chooseSubtitles(id) {
      hls.subtitleDisplay = id !== null;
      hls.subtitleTrack = id ?? -1;
    },
    goLive() {
      stayClose();
      if (hls.liveSyncPosition !== null) video.currentTime = hls.liveSyncPosition;
    },
    hold() {
      hls.config.liveMaxLatencyDurationCount = Number.POSITIVE_INFINITY;
    },
    destroy() {
      unwatch();
      video.removeEventListener('timeupdate', steer);
      for (const event of INTERRUPTIONS) video.removeEventListener(event, forget);
      video.playbackRate = 1;
      hls.destroy();
    },
  };
};

/**
 * Has hls.js go on where it stands still though there are newer media (docs/player.md, "Where hls.js stands still"): a
 * seek to just behind what is buffered makes it look for media anew, and one over a hole leaves the hole. Returns the
 * way to stop that.
 */
function goOnWhereItStands(hls: Hls, video: HTMLVideoElement): () => void {
  const standstill = new Standstill();
  hls.on(Hls.Events.FRAG_LOADING, (_event, { frag, part }) =>
    standstill.asks(frag.type, performance.now(), (part ?? frag).start),
  );
  for (const event of [Hls.Events.FRAG_LOADED, Hls.Events.FRAG_LOAD_EMERGENCY_ABORTED] as const) {
    hls.on(event, (_event: string, { frag }: { frag: { type: string } }) => standstill.answered(frag.type));
  }
  hls.on(Hls.Events.ERROR, (_event, { frag }) => {
    if (frag) standstill.answered(frag.type);
  });
  const timer = setInterval(() => {
    const edges = [hls.levels[hls.currentLevel], hls.audioTracks[hls.audioTrack]]
      .map((playlist) => playlist?.details?.edge)
      .filter((edge) => edge !== undefined);
    const to = standstill.look(performance.now(), {
      time: video.currentTime,
      wanted: !video.paused && !video.seeking && !video.ended && video.readyState > 0,
      seeking: video.seeking,
      bufferedTo: endOfBuffered(video),
      nextFrom: nextBuffered(video),
      listedTo: Math.min(...edges),
    });
    if (to !== null && edges.length > 0) video.currentTime = to;
  }, LOOK_EVERY);
  return () => clearInterval(timer);
}

/** Until when there are media at the picture without a hole, in seconds. */
function endOfBuffered({ buffered, currentTime }: HTMLVideoElement): number {
  for (let i = 0; i < buffered.length; i++) {
    if (buffered.start(i) <= currentTime + 0.1 && currentTime < buffered.end(i)) return buffered.end(i);
  }
  return currentTime;
}

/** Where the first media behind the picture begin, if there are none at it; in seconds. */
function nextBuffered({ buffered, currentTime }: HTMLVideoElement): number | null {
  for (let i = 0; i < buffered.length; i++) {
    if (buffered.start(i) > currentTime) return buffered.start(i);
    if (currentTime < buffered.end(i)) return null;
  }
  return null;
}

/** A track's playlist is not there any more. */
function isPlaylistGone({ details, response }: ErrorData): boolean {
  const { LEVEL_LOAD_ERROR, AUDIO_TRACK_LOAD_ERROR } = Hls.ErrorDetails;
  return (details === LEVEL_LOAD_ERROR || details === AUDIO_TRACK_LOAD_ERROR) && response?.code === 404;
}

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
    const status = data.response?.code;
    const failure: Failure = { kind: 'network', what: httpFailure(what, status), detail };
    const url = data.context?.url ?? data.url;
    return status && url ? { ...failure, refusedBy: url } : failure;
  }
  if (data.type === Hls.ErrorTypes.MEDIA_ERROR) {
    return { kind: 'media', what: 'The browser could not decode the stream.', detail };
  }
  return { kind: 'engine', what: 'The player met an error it cannot mend.', detail };
}
