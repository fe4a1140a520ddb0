import Hls, { type ErrorData, type Fragment, type HlsConfig, type LevelDetails } from 'hls.js';
import type { Credentials } from '../../shared/credentials';
import { trackLabel } from '../../shared/format';
import { endOfBuffered, nextBuffered } from '../buffered';
import type { Failure } from '../condition';
import { LOW_LATENCY, Pace, WHOLE_SEGMENTS } from '../pace';
import { PartTimes } from '../parts';
import { PageClock, Standstill } from '../standstill';
import {
  type Choices,
  type EngineStats,
  httpFailure,
  NO_CHOICES,
  NO_STATS,
  type StartEngine,
} from './engine';

/** A low-latency viewer that is more target durations behind than this is taken back to live. */
const MOST_BEHIND = 3;

/** Playback goes over holes of up to this length, in seconds. */
const SMALL_GAP = 0.1;

/** How often a decoder is started anew, in milliseconds. */
const RECOVER_EVERY = 60_000;

/** How often to check whether the playhead stands still, in milliseconds. */
const LOOK_EVERY = 50;

/** After these events, earlier buffer levels tell nothing about later ones. */
const INTERRUPTIONS = ['seeking', 'pause', 'waiting'] as const;

/** HLS by hls.js, with or without low latency. */
export const startHls: StartEngine = (video, url, { lowLatency, recorded, startAt, credentials }, events) => {
  const hls = new Hls({
    lowLatencyMode: lowLatency,
    // hls.js only inspects fragmented MP4, so a worker would add a hop and gain nothing.
    enableWorker: false,
    // Without liveSyncDuration, hls.js keeps the server's PART-HOLD-BACK (HOLD-BACK without low
    // latency). Pace does the catching up. With this maximum, hls.js does not change the rate.
    maxLiveSyncPlaybackRate: 1,
    // A stall moves the target away from live by this much, up to one target duration.
    liveSyncOnStallIncrease: lowLatency ? 0.25 : 1,
    backBufferLength: 30,
    startLevel: -1,
    ...(recorded ? { startPosition: startAt } : {}),
    ...letIn(credentials),
    // A missing or late answer is retried at once: this close to live, a second is long.
    ...(lowLatency ? { highBufferWatchdogPeriod: 1, detectStallWithCurrentTimeMs: 750 } : {}),
  });
  // This is set after the constructor. The constructor accepts it only together with a fixed
  // distance in place of the server's.
  const stayClose = () => {
    if (lowLatency) hls.config.liveMaxLatencyDurationCount = MOST_BEHIND;
  };
  stayClose();
  let recoveredAt = Number.NEGATIVE_INFINITY;
  const pace = new Pace(lowLatency ? LOW_LATENCY : WHOLE_SEGMENTS);
  const steer = () => {
    const { targetLatency } = hls;
    if (video.seeking || video.paused || hls.latency <= 0 || targetLatency === null) return;
    const buffer = endOfBuffered(video, SMALL_GAP) - video.currentTime;
    const rate = pace.rate(performance.now(), hls.latency, targetLatency, buffer);
    if (video.playbackRate !== rate) video.playbackRate = rate;
    if (pace.jump() > 0) video.currentTime += pace.jump();
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
  const times = new PartTimes();
  const leave = () => {
    // Before the first frame, the wait is for the beginning.
    if (video.played.length === 0 || !times.waiting(performance.now())) return;
    // dash.js asks once for a segment, and its parts come as they are made, with no round trip for each.
    const what = 'Parts take longer to come than they last: this network is too slow for LL-HLS.';
    const detail = `${times.late} of the newest parts took longer than they last`;
    events.failed({ kind: 'network', what, detail, instead: 'dash' });
  };
  if (lowLatency && !recorded) {
    hls.on(Hls.Events.FRAG_LOADED, (_event, { part }) => {
      if (part) times.arrived(part.stats.loading.end - part.stats.loading.start, part.duration * 1_000);
    });
    video.addEventListener('waiting', leave);
  }

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
    // A decoder that fails on one frame recovers by a restart. Attempts one after the other could loop.
    const now = performance.now();
    const may = now - recoveredAt > RECOVER_EVERY;
    if (data.type === Hls.ErrorTypes.MEDIA_ERROR && !isCodecError(data) && may) {
      recoveredAt = now;
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
        // The average of a file is known; that of a broadcast is measured so far.
        bitrate: (recorded ? level?.averageBitrate : level?.bitrate) ?? null,
        frameRate: level?.frameRate || null,
        codec: level ? [level.videoCodec, level.audioCodec].filter(Boolean).join(', ') || null : null,
        // Before it has measured, this is a guess.
        throughput: hls.bandwidthEstimate > 0 && video.played.length > 0 ? hls.bandwidthEstimate : null,
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
      video.removeEventListener('waiting', leave);
      for (const event of INTERRUPTIONS) video.removeEventListener(event, forget);
      video.playbackRate = 1;
      hls.destroy();
    },
  };
};

/** Makes hls.js send credentials with all that it asks for. */
function letIn({ headers }: Credentials): Partial<HlsConfig> {
  const all = Object.entries(headers);
  if (all.length === 0) return {};
  return {
    xhrSetup(xhr, url) {
      // Headers can only be set on an open request, and hls.js opens it after this call.
      xhr.open('GET', url, true);
      for (const [name, value] of all) xhr.setRequestHeader(name, value);
    },
  };
}

/**
 * Makes hls.js go on where it stands still although there are newer media (docs/player.md, "Where
 * hls.js stands still"). A seek to just behind the buffered media makes it look for media again,
 * and a seek over a hole leaves the hole. A request without an answer is ended, and hls.js repeats
 * it. At a broadcast's end, it ends the media source where hls.js does not. Returns a function that
 * stops this.
 */
export function goOnWhereItStands(hls: Hls, video: HTMLVideoElement): () => void {
  const standstill = new Standstill();
  // Answers that came while something else held the page are not seen yet: such time does not count.
  const clock = new PageClock(performance.now(), 2 * LOOK_EVERY);
  const loading = new Map<string, { frag: Fragment; loader: Fragment['loader'] }>();
  hls.on(Hls.Events.FRAG_LOADING, (_event, { frag, part }) => {
    standstill.asks(frag.type, clock.now, (part ?? frag).start);
    loading.set(frag.type, { frag, loader: null });
  });
  // Of parts that hls.js requests one after the other, it announces only the first.
  const noteRequests = (now: number) => {
    for (const [track, request] of loading) {
      const { loader } = request.frag;
      if (loader === null || loader === request.loader) continue;
      request.loader = loader;
      standstill.asks(track, now, (loader.context?.part ?? request.frag).start);
    }
  };
  hls.on(Hls.Events.FRAG_LOADED, (_event, { frag }) => standstill.arrived(frag.type));
  hls.on(Hls.Events.FRAG_LOAD_EMERGENCY_ABORTED, (_event, { frag }) => standstill.answered(frag.type));
  hls.on(Hls.Events.ERROR, (_event, { frag }) => {
    if (frag) standstill.answered(frag.type);
  });
  const timer = setInterval(() => {
    const playlists = [
      { details: hls.levels[hls.currentLevel]?.details, buffer: hls.mainForwardBufferInfo },
      { details: hls.audioTracks[hls.audioTrack]?.details, buffer: hls.audioForwardBufferInfo },
    ];
    const tracks = playlists.flatMap(({ details, buffer }) =>
      details ? { live: details.live, listedTo: details.edge, bufferedTo: buffer?.end ?? 0 } : [],
    );
    const now = clock.tick(performance.now());
    noteRequests(now);
    for (const track of standstill.lost(now)) {
      const frag = loading.get(track)?.frag;
      // hls.js asks again for media whose request ends. A seek within a segment does not end it.
      if (frag?.loader?.stats.loading.first === 0) frag.abortRequests();
    }
    const look = {
      time: video.currentTime,
      wanted: !video.paused && !video.seeking && !video.ended && video.readyState > 0,
      seeking: video.seeking,
      bufferedTo: endOfBuffered(video),
      nextFrom: nextBuffered(video),
      listedTo: Math.min(...tracks.map(({ listedTo }) => listedTo)),
    };
    const to = standstill.look(now, look);
    if (tracks.length === 0) return;
    if (to !== null) video.currentTime = to;
    if (tracks.some(({ live }) => live) || !standstill.hasAll(now, look, tracks)) return;
    for (const type of ['video', 'audio'] as const) hls.trigger(Hls.Events.BUFFER_EOS, { type });
  }, LOOK_EVERY);
  return () => clearInterval(timer);
}

/** Whether a track's playlist is gone. */
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
