import { type Credentials, NO_CREDENTIALS } from './credentials';
import { fetchSignedIn } from './signing-in';
import { pathOf } from './streams';

/** `offline`: the publisher is lost and may come back within 30 s; `ended`: the stream is over. */
export type StreamState = 'live' | 'offline' | 'ended';

export interface Publisher {
  /** Address and port of the publisher; null for one inside the server, such as the demo clip. */
  peer: string | null;
  protocol: string;
  /** Which rendition this publisher sends, when a stream has several publishers. */
  rendition: string | null;
  /** Whether it is the stream's backup. */
  backup: boolean;
}

export interface Track {
  /** `v0`, `v1`, … by falling bit rate; then `a0`, …. */
  name: string;
  kind: 'video' | 'audio';
  /** RFC 6381. */
  codec: string;
  /** In bit/s; null until the server has measured it. */
  bitrate: number | null;
  width: number | null;
  height: number | null;
  /** Frames per second. */
  frameRate: number | null;
  /** Hz */
  sampleRate: number | null;
  channels: number | null;
}

/** What an operator should know of a stream, in words. */
export interface Advice {
  /** `warning`: viewers notice; `note`: good to know. */
  level: 'warning' | 'note';
  text: string;
}

/** What half of the viewers have, and what one in ten is worse off than. */
export interface Spread {
  median: number;
  bad: number;
}

/** How viewers are whose players tell of themselves. What none told is null. */
export interface Quality {
  viewers: number;
  /** Seconds. */
  buffer: Spread | null;
  /** Seconds. */
  startup: Spread | null;
  /** In bit/s. */
  throughput: Spread | null;
  /** In bit/s. */
  bitrate: Spread | null;
  /** How many need media urgently. */
  urgent: number;
  /** How often players ran out of media, since the stream began. */
  stalls: number;
}

export interface Stream {
  name: string;
  state: StreamState;
  /** When the stream began; null if the answer has no valid time. */
  since: Date | null;
  publishers: Publisher[];
  /** Publishers whose media are dropped, because others of the stream are used. */
  waiting: Publisher[];
  tracks: Track[];
  /** What of its health matters. Empty if all is well, or if the stream is over. */
  advice: Advice[];
  /** Viewers by delivery, in the server's order. */
  viewers: { delivery: string; count: number }[];
  /** Null if no player tells. */
  quality: Quality | null;
}

/** The server's answer is not what the API promises. */
export class BadAnswer extends Error {}

/** The server answered with an error. */
export class Refused extends BadAnswer {
  constructor(readonly status: number) {
    super(`the server answered ${status}`);
  }
}

/**
 * Gets a live stream by its path, `live/NAME`; null if there is none. `prefix` stands before all addresses of a signed
 * page. Rejects if the server cannot be reached or its answer is invalid.
 */
export async function readStream(
  path: string,
  prefix: string,
  credentials: Credentials,
  signal?: AbortSignal,
): Promise<Stream | null> {
  // Browsers report each 404 in their console, and a page may wait for a stream for hours.
  const answer = await ask(`${prefix}/api/v1/streams/${pathOf(path)}?absent=null`, signal, credentials);
  return answer === null ? null : parseStream(answer);
}

/** What the dashboard shows. */
export interface Overview {
  /** The name of the node that answers, if it is in a cluster. */
  node: string | null;
  streams: Stream[];
}

/**
 * Gets the streams, and the name of the node. Rejects if the server cannot be reached or its answer is invalid.
 */
export async function readOverview(): Promise<Overview> {
  const answer = await ask('/api/v1/streams');
  return { node: text(record(answer).node), streams: parseStreams(answer) };
}

/** Asks the control API. Rejects if the server cannot be reached or answers with an error. */
export async function ask(
  path: string,
  signal?: AbortSignal,
  { headers } = NO_CREDENTIALS,
): Promise<unknown> {
  const response = await fetchSignedIn(path, { accept: 'application/json', ...headers }, signal);
  if (!response.ok) throw new Refused(response.status);
  return await response.json();
}

/**
 * Reads the answer of `GET /api/v1/streams`. A stream without name or state is an error; other
 * fields may be missing.
 */
export function parseStreams(answer: unknown): Stream[] {
  const streams = record(answer).streams;
  if (!Array.isArray(streams)) throw new BadAnswer('the list of streams is missing');
  return streams.map(parseStream);
}

function parseStream(value: unknown): Stream {
  const stream = record(value);
  const name = text(stream.name);
  const state = stream.state;
  if (name === null) throw new BadAnswer('a stream without a name');
  if (state !== 'live' && state !== 'offline' && state !== 'ended')
    throw new BadAnswer(`stream ${name} in no known state`);
  const since = new Date(text(stream.since) ?? Number.NaN);
  return {
    name,
    state,
    since: Number.isNaN(since.getTime()) ? null : since,
    publishers: list(stream.publishers).map(parsePublisher),
    waiting: list(stream.waiting).map(parsePublisher),
    tracks: list(stream.tracks).map(parseTrack),
    advice: list(record(stream.health ?? {}).advice).map(({ level, text: words }) => ({
      level: level === 'warning' ? 'warning' : 'note',
      text: text(words) ?? '',
    })),
    viewers: Object.entries(record(stream.viewers ?? {})).map(([delivery, count]) => ({
      delivery,
      count: number(count) ?? 0,
    })),
    quality: stream.quality == null ? null : parseQuality(record(stream.quality)),
  };
}

export function parseTrack(track: Record<string, unknown>): Track {
  return {
    name: text(track.name) ?? '',
    kind: track.kind === 'audio' ? 'audio' : 'video',
    codec: text(track.codec) ?? '',
    bitrate: number(track.bitrate) || null,
    width: number(track.width),
    height: number(track.height),
    frameRate: number(track.frame_rate),
    sampleRate: number(track.sample_rate),
    channels: number(track.channels),
  };
}

function parseQuality(quality: Record<string, unknown>): Quality {
  const spread = (value: unknown) => {
    if (value == null) return null;
    const { median, bad } = record(value);
    return { median: number(median) ?? 0, bad: number(bad) ?? 0 };
  };
  return {
    viewers: number(quality.viewers) ?? 0,
    buffer: spread(quality.buffer_seconds),
    startup: spread(quality.startup_seconds),
    throughput: spread(quality.throughput),
    bitrate: spread(quality.bitrate),
    urgent: number(quality.urgent) ?? 0,
    stalls: number(quality.stalls) ?? 0,
  };
}

function parsePublisher(publisher: Record<string, unknown>): Publisher {
  return {
    peer: text(publisher.peer),
    protocol: text(publisher.protocol) ?? 'unknown',
    rendition: text(publisher.rendition),
    backup: publisher.backup === true,
  };
}

export function record(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new BadAnswer('not an object');
  return value as Record<string, unknown>;
}

export function list(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.map(record) : [];
}

export function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

export function number(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}
