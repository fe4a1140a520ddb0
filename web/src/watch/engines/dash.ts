import {
  type MediaInfo,
  MediaPlayer,
  type MediaPlayerClass,
  type MediaPlayerEvent,
  type MediaPlayerSettingClass,
} from 'dashjs';
import { trackLabel } from '../../shared/format';
import type { Failure } from '../condition';
import { leaveEnds } from '../stranded';
import {
  type Choice,
  type Choices,
  type EngineStats,
  httpFailure,
  NO_CHOICES,
  NO_STATS,
  type StartEngine,
} from './engine';

/** Codes of dash.js errors (MediaPlayer.errors) for bytes that did not arrive. */
const NETWORK_ERRORS: Record<number, string> = {
  11: 'The manifest',
  17: 'A segment',
  25: 'The manifest',
  26: 'An index',
  27: 'A segment',
  28: 'A header',
};
const PARSING_ERRORS = [10, 31];
const NOTHING_PLAYABLE = [23, 24, 32];
/** The clock did not answer: latency is less exact, but playback goes on. */
const TIME_SYNC_FAILED = 16;

/** The events that tell that a video element is more ready than before. */
const READINESS = ['loadedmetadata', 'loadeddata', 'canplay', 'canplaythrough'] as const;

/**
 * How much faster than normal playback catches up with live, and the second rate for viewers that
 * are this many seconds too far behind.
 */
const FASTER = 0.1;
const FASTER_WHEN_FAR = 0.3;
const FAR = 1;

interface DashError {
  error?: { code?: number; message?: string; data?: { response?: { status?: number } | null } } | string;
}

/** DASH by dash.js. The manifest's ServiceDescription sets the distance from live. */
export const startDash: StartEngine = (video, url, { recorded, startAt, credentials }, events) => {
  const player = MediaPlayer().create();
  const settings: MediaPlayerSettingClass = {
    debug: { logLevel: 0 },
    streaming: {
      applyServiceDescription: true,
      liveCatchup: { enabled: true, playbackRate: { min: -FASTER, max: FASTER } },
      delay: { liveDelay: Number.NaN, useSuggestedPresentationDelay: true },
      utcSynchronization: {
        useManifestDateHeaderTimeSource: false,
        defaultTimingSource: {
          scheme: 'urn:mpeg:dash:utc:http-xsdate:2014',
          // By default, dash.js would ask a third party's server.
          value: new URL('/api/v1/time', location.href).href,
        },
      },
      text: { defaultEnabled: false },
      // All visits begin alike: the browser stores nothing between them.
      lastBitrateCachingInfo: { enabled: false },
      lastMediaSettingsCachingInfo: { enabled: false },
    },
  };
  player.initialize();
  player.updateSettings(settings);
  player.addRequestInterceptor((request) => {
    request.headers = { ...request.headers, ...credentials.headers };
    return Promise.resolve(request);
  });
  player.on('manifestLoaded', () => events.manifest());
  player.on('error', (event: unknown) => {
    const { error } = event as DashError;
    if (typeof error === 'object' && error.code === TIME_SYNC_FAILED) return;
    const failure = failureOf(error);
    events.failed(isRefused(error) ? { ...failure, refusedBy: url } : failure);
  });
  let fastest = FASTER;
  // A viewer 4 to 6 s too far behind is within a second of the target in less than 20 s.
  player.on('playbackTimeUpdated', () => {
    if (recorded || !player.isDynamic()) return;
    const behind = player.getCurrentLiveLatency() - player.getTargetLiveDelay();
    const max = behind > FAR ? FASTER_WHEN_FAR : FASTER;
    if (max === fastest) return;
    fastest = max;
    player.updateSettings({ streaming: { liveCatchup: { playbackRate: { min: -FASTER, max } } } });
  });
  const gone = new AbortController();
  endOnce(player, video, gone.signal);
  if (!recorded) leaveEnds(video, gone.signal);
  player.setAutoPlay(video.autoplay);
  player.attachView(video);
  player.attachSource(url, recorded && startAt > 0 ? startAt : undefined);

  return {
    name: `dash.js ${player.getVersion()}`,
    stats(): EngineStats {
      const ready = player.isReady() && player.getActiveStream() !== null;
      const live = ready && !recorded && player.isDynamic();
      const playing = ready ? player.getCurrentRepresentationForType('video') : null;
      const latency = live ? player.getCurrentLiveLatency() : Number.NaN;
      return {
        ...NO_STATS,
        latency: Number.isFinite(latency) && latency > 0 ? latency : null,
        targetLatency: live ? player.getTargetLiveDelay() : null,
        bitrate: playing?.bandwidth ?? null,
        frameRate: playing?.frameRate || null,
        codec: playing?.codecs ?? null,
        throughput: ready ? player.getAverageThroughput('video') * 1000 || null : null,
      };
    },
    choices(): Choices {
      if (!player.isReady() || player.getActiveStream() === null) return NO_CHOICES;
      const audio = player.getTracksFor('audio');
      const subtitles = player.getTracksFor('text');
      const chosen = player.getCurrentTrackFor('audio');
      const text = player.getCurrentTextTrackIndex();
      return {
        ...NO_CHOICES,
        audio: audio.map(choiceOf),
        chosenAudio: chosen ? audio.findIndex(({ index }) => index === chosen.index) : null,
        subtitles: subtitles.map(choiceOf),
        chosenSubtitles: player.isTextEnabled() && text >= 0 ? text : null,
      };
    },
    chooseAudio(id) {
      const track = player.getTracksFor('audio')[id];
      if (track) player.setCurrentTrack(track);
    },
    chooseSubtitles(id) {
      player.enableText(id !== null);
      player.setTextTrack(id ?? -1);
    },
    goLive() {
      if (player.isReady() && player.isDynamic()) player.seekToOriginalLive();
    },
    hold() {
      // dash.js itself takes a viewer back to live only beyond liveCatchup.maxDrift.
    },
    destroy() {
      gone.abort();
      // dash.js delays a change of rate until one of these events, and does not remove this
      // listener when it is destroyed. So the events are sent now: otherwise the listener would run
      // in the destroyed player when the next engine has media.
      for (const event of READINESS) video.dispatchEvent(new Event(event));
      player.destroy();
      video.playbackRate = 1;
    },
  };
};

/**
 * Ends a title when dash.js sees its end before the browser sends `ended`, as on a busy page.
 * Without this, dash.js seeks to the end and pauses, which may keep the browser from sending
 * `ended`. A seek restarts the timer that looks for the end. So dash.js does this five times a
 * second, with a request for a header each. When it gets `ended`, it does neither. (dash.js 5.2.1:
 * StreamController's timer, PlaybackController's handler of PLAYBACK_ENDED.)
 */
function endOnce(player: MediaPlayerClass, video: HTMLVideoElement, signal: AbortSignal): void {
  let said = false;
  // These listeners run before those of dash.js.
  const first = { signal, capture: true };
  video.addEventListener('ended', () => (said = true), first);
  video.addEventListener('seeking', () => (said = false), first);
  const ends = ({ isLast }: { isLast?: boolean }) => {
    if (isLast && video.ended && !said) video.dispatchEvent(new Event('ended'));
  };
  // dash.js's own handlers have priorities up to 5,000.
  player.on('playbackEnded', ends as (event: MediaPlayerEvent) => void, undefined, { priority: 10_000 });
}

function choiceOf(track: MediaInfo, id: number): Choice {
  return { id, label: trackLabel(track.labels[0]?.text ?? '', track.lang ?? '', id) };
}

/** Whether the server answered a request with an error. The manifest's address may tell why. */
function isRefused(error: DashError['error']): boolean {
  if (typeof error !== 'object' || !error.data?.response?.status) return false;
  return NETWORK_ERRORS[error.code ?? 0] !== undefined;
}

function failureOf(error: DashError['error']): Failure {
  if (typeof error !== 'object')
    return { kind: 'engine', what: 'The player met an error it cannot mend.', detail: String(error) };
  const code = error.code ?? 0;
  const detail = `dash.js error ${code}: ${error.message ?? ''}`;
  const network = NETWORK_ERRORS[code];
  if (network) return { kind: 'network', what: httpFailure(network, error.data?.response?.status), detail };
  if (PARSING_ERRORS.includes(code))
    return { kind: 'media', what: 'The manifest the server sent cannot be read.', detail };
  if (NOTHING_PLAYABLE.includes(code)) {
    return { kind: 'codec', what: 'This browser decodes none of the codecs the stream is sent in.', detail };
  }
  return { kind: 'media', what: 'The browser could not play the stream.', detail };
}
