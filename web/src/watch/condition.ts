import type { StreamState } from '../shared/api';
import type { Via } from '../shared/streams';

/** The stream's state in the server's list. */
export type Directory = 'unknown' | 'unreachable' | 'failing' | 'absent' | StreamState;

/** Whether the server tells nothing about the stream: it cannot be reached, or answers with an error. */
function isSilent(directory: Directory): boolean {
  return directory === 'unreachable' || directory === 'failing';
}

/** The state of the engine (hls.js, dash.js, or the browser's own). */
export type EngineState = 'idle' | 'starting' | 'playing' | 'waiting' | 'finished' | 'failed';

export interface Failure {
  /**
   * `network`: bytes did not arrive. `codec`: this browser cannot decode them. `media`: they are
   * broken.
   */
  kind: 'network' | 'codec' | 'media' | 'engine';
  /** What failed, as a sentence. */
  what: string;
  /** The engine's name for the failure, for a bug report. */
  detail: string;
  /** The address whose answer ended playback. Its text may tell why. */
  refusedBy?: string;
  /** A delivery that may get through where this one did not. */
  instead?: Via;
}

/** All facts on which the page's message depends. */
export interface Facts {
  /** Null when the address names no valid stream. */
  stream: string | null;
  recorded: boolean;
  /** The delivery in the address, if this page does not have it. */
  unknownVia: string | null;
  /** Whether the browser can play streams at all. */
  capable: boolean;
  /** Names of codecs of which the browser can decode none. */
  missingCodecs: readonly string[];
  directory: Directory;
  /** When the current broadcast began, in milliseconds since 1970. */
  since: number | null;
  /** Whether the broadcast has been seen. Then its absence means that it is over. */
  seen: boolean;
  engine: EngineState;
  failure: Failure | null;
  /**
   * A track that the engine plays is over, but the broadcast goes on: the engine will wait for
   * media that never come.
   */
  incomplete: boolean;
  /** Number of the engine; a new number asks for a new engine. */
  generation: number;
}

export type Happening =
  | { type: 'directory'; directory: Directory; since: number | null; missingCodecs: readonly string[] }
  | { type: 'engine'; engine: Exclude<EngineState, 'failed'> }
  | { type: 'failed'; failure: Failure }
  | { type: 'stuck' }
  | { type: 'track-over' }
  | { type: 'retry' }
  | { type: 'via'; unknownVia: string | null };

export function initialFacts(request: Pick<Facts, 'stream' | 'recorded' | 'unknownVia' | 'capable'>): Facts {
  return {
    ...request,
    missingCodecs: [],
    directory: 'unknown',
    since: null,
    seen: false,
    engine: 'idle',
    failure: null,
    incomplete: false,
    generation: 0,
  };
}

function renewed(facts: Facts): Facts {
  return { ...facts, engine: 'idle', failure: null, incomplete: false, generation: facts.generation + 1 };
}

/**
 * Asks for a new engine if the present one waits or fails because a track is over. Buffered media
 * are played first.
 */
function completed(facts: Facts): Facts {
  const vain = facts.engine === 'waiting' || facts.engine === 'finished' || facts.engine === 'failed';
  return facts.incomplete && vain && facts.directory === 'live' ? renewed(facts) : facts;
}

/** The facts after an event. */
export function next(facts: Facts, happening: Happening): Facts {
  switch (happening.type) {
    case 'directory': {
      const { directory, missingCodecs } = happening;
      const silent = isSilent(directory);
      const after: Facts = {
        ...facts,
        directory,
        // A silent server tells nothing about the stream, so the known facts stay.
        since: silent ? facts.since : happening.since,
        missingCodecs: silent ? facts.missingCodecs : missingCodecs,
        seen: facts.seen || (!silent && directory !== 'absent' && directory !== 'unknown'),
      };
      const cameBack = directory === 'live' && facts.directory !== 'live';
      const another = directory === 'live' && facts.since !== null && happening.since !== facts.since;
      const over = facts.engine === 'finished' || facts.engine === 'failed';
      // A restarted server numbers its segments anew, so an engine would wait for the old ones in
      // vain.
      if (facts.engine === 'waiting' && another) return renewed(after);
      if (facts.engine === 'failed' && facts.recorded) {
        return isSilent(facts.directory) && !silent ? renewed(after) : after;
      }
      return over && (cameBack || another) ? renewed(after) : after;
    }
    case 'engine':
      // A failed engine is being torn down, and its further events do not count.
      return facts.engine === 'failed' ? facts : completed({ ...facts, engine: happening.engine });
    case 'failed':
      return completed({ ...facts, engine: 'failed', failure: happening.failure });
    case 'track-over':
      return completed({ ...facts, incomplete: true });
    case 'stuck': {
      // The engine is stuck, or has ended, although the publisher is there. A new engine helps, for
      // instance after a restart of the server.
      const ended = facts.engine === 'finished' && !facts.recorded;
      // The server answers the page, and did not refuse the engine.
      const { failure } = facts;
      const unreached =
        facts.engine === 'failed' && failure?.kind === 'network' && failure.refusedBy === undefined;
      const vain = facts.engine === 'waiting' || facts.engine === 'starting' || ended || unreached;
      return vain && facts.directory === 'live' ? renewed(facts) : facts;
    }
    case 'retry':
      return renewed(facts);
    case 'via':
      return renewed({ ...facts, unknownVia: happening.unknownVia });
  }
}

/** Whether an engine should exist now. */
export function wantsEngine(facts: Facts): boolean {
  if (!playable(facts) || facts.engine === 'failed') return false;
  if (facts.recorded || facts.directory === 'live') return true;
  // Buffered media play on when the publisher or the server is gone.
  return facts.engine !== 'idle';
}

function playable(facts: Facts): boolean {
  return (
    facts.stream !== null && facts.unknownVia === null && facts.capable && facts.missingCodecs.length === 0
  );
}

export type ConditionKind =
  | 'bad-stream'
  | 'bad-delivery'
  | 'incapable'
  | 'unsupported'
  | 'looking'
  | 'unreachable'
  | 'not-begun'
  | 'starting'
  | 'playing'
  | 'buffering'
  | 'offline'
  | 'ended'
  | 'failed';

export interface Condition {
  kind: ConditionKind;
  /** One or two words for the state badge. */
  label: string;
  /** The message over the video; null for none. */
  message: { title: string; text: string; detail?: string; retry?: boolean } | null;
}

/**
 * What to tell the viewer. The first condition that holds wins. Permanent conditions come before
 * passing ones.
 */
export function condition(facts: Facts): Condition {
  if (facts.stream === null) {
    return say(
      'bad-stream',
      'No stream',
      'This address names no stream',
      'A stream is live/NAME or vod/PATH: /watch/live/NAME.',
    );
  }
  if (facts.unknownVia !== null) {
    return say(
      'bad-delivery',
      'Not available',
      `Delivery “${facts.unknownVia}” is not available`,
      'Choose one of the deliveries this page has.',
    );
  }
  if (!facts.capable) {
    return say(
      'incapable',
      'Not supported',
      'This browser cannot play streams',
      'It has neither Media Source Extensions nor HLS of its own. A current browser has.',
    );
  }
  if (facts.missingCodecs.length > 0 && facts.directory !== 'absent' && facts.directory !== 'ended') {
    const names = facts.missingCodecs.join(' and ');
    return say(
      'unsupported',
      'Not supported',
      `This browser does not decode ${names}`,
      `The stream is sent in ${names}. Another browser or a player such as VLC may play it.`,
    );
  }
  const { directory, engine } = facts;
  if (engine === 'playing' && directory !== 'offline')
    return { kind: 'playing', label: 'Playing', message: null };
  if (directory === 'unreachable') {
    return say(
      'unreachable',
      'No connection',
      'The server cannot be reached',
      'Trying again every few seconds.',
    );
  }
  if (directory === 'failing') {
    return say(
      'unreachable',
      'No answer',
      'The server answers with an error',
      'It is there, but something on it fails. Trying again every few seconds.',
    );
  }
  if (!facts.recorded) {
    const gone = directory === 'ended' || (directory === 'absent' && facts.seen);
    if (gone || engine === 'finished') {
      return say('ended', 'Ended', 'The broadcast has ended', 'If it begins again, it plays here by itself.');
    }
    if (directory === 'offline') {
      return say(
        'offline',
        'Interrupted',
        'The publisher has lost its connection',
        'It may come back within 30 seconds; the picture then goes on by itself.',
      );
    }
    if (directory === 'absent') {
      return say(
        'not-begun',
        'Not begun',
        'The broadcast has not begun yet',
        'It plays here by itself as soon as it begins.',
      );
    }
  }
  switch (engine) {
    case 'failed': {
      const failure = facts.failure ?? { what: 'Playback failed', detail: '', kind: 'engine' };
      const unsupported = failure.kind === 'codec';
      return {
        kind: unsupported ? 'unsupported' : 'failed',
        label: unsupported ? 'Not supported' : 'Failed',
        message: { title: 'Playback failed', text: failure.what, detail: failure.detail, retry: true },
      };
    }
    case 'finished':
      return say('ended', 'Ended', 'The end', 'Press play to watch again.');
    case 'waiting':
      return say('buffering', 'Buffering', 'Buffering…', '');
    case 'starting':
      return say('starting', 'Starting', 'Starting…', '');
    default:
      return say('looking', 'Connecting', 'Connecting…', '');
  }
}

function say(kind: ConditionKind, label: string, title: string, text: string): Condition {
  return { kind, label, message: { title, text } };
}
