import { timeout } from '../shared/abort';
import { ask, BadAnswer, list, number, Refused, record, text } from '../shared/api';

/** One who publishes or plays over a connection of its own. */
export interface Session {
  id: number;
  action: 'publish' | 'play';
  protocol: string;
  /** Address and port; null if this page may not know. */
  peer: string | null;
  since: Date | null;
  bytes: number;
  /** How far a viewer is behind the newest media, in seconds. */
  behind: number | null;
  rendition: string | null;
  /** When and why it ended; null while it is open. */
  ended: { at: Date | null; reason: string | null } | null;
}

export interface Sessions {
  sessions: Session[];
  /** How many more there are. */
  leftOut: number;
  /** How many viewers are counted and not listed. */
  onlyCounted: number;
}

/** Figures of the node. All lists have one entry for each sample. */
export interface NodeHistory {
  /** In seconds since 1970. */
  at: number[];
  /** How many processors the machine has. */
  processors: number;
  processorsUsed: (number | null)[];
  viewers: { delivery: string; counts: (number | null)[] }[];
  bitsPerSecond: (number | null)[];
  memory: (number | null)[];
  liveMemory: (number | null)[];
}

/** Figures of a stream. All lists have one entry for each sample. */
export interface StreamHistory {
  /** In seconds since 1970. */
  at: number[];
  viewers: (number | null)[];
  bitsPerSecond: (number | null)[];
  frameRate: (number | null)[];
  keyframeDistance: (number | null)[];
  /** How far audio is ahead of video, in seconds. */
  audioOffset: (number | null)[];
}

/** The open sessions of a stream. Publishers are asked for by themselves, because viewers might leave them no room. */
export async function readOpen(stream: string): Promise<{ publishers: Sessions; viewers: Sessions }> {
  const of = `/api/v1/sessions?stream=${encodeURIComponent(stream)}`;
  const [publishers, viewers] = await Promise.all([ask(`${of}&action=publish`), ask(`${of}&action=play`)]);
  return { publishers: parseSessions(publishers), viewers: parseSessions(viewers) };
}

/** The sessions of a stream that ended within the last hour, the last one first. */
export async function readEnded(stream: string): Promise<Sessions> {
  return parseSessions(await ask(`/api/v1/sessions?ended=true&stream=${encodeURIComponent(stream)}`));
}

/**
 * Ends a session. One that is over already is no error. Only the operators' listener ends sessions: another answers with
 * 404 for each.
 */
export async function endSession(id: number): Promise<void> {
  const response = await fetch(`/api/v1/sessions/${id}`, {
    method: 'DELETE',
    signal: timeout(5_000),
  });
  if (response.ok) return;
  const problem = response.status === 404 ? record(await response.json()) : null;
  if (problem?.detail !== 'no such session') throw new Refused(response.status);
}

export async function readNodeHistory(): Promise<NodeHistory> {
  return parseNodeHistory(await ask('/api/v1/history'));
}

/** The figures of a stream; null if there are none. */
export async function readStreamHistory(stream: string): Promise<StreamHistory | null> {
  const answer = await ask(`/api/v1/history?absent=null&stream=${encodeURIComponent(stream)}`);
  return answer === null ? null : parseStreamHistory(answer);
}

/** Reads the answer of `GET /api/v1/sessions`. A session without a number is an error. */
export function parseSessions(answer: unknown): Sessions {
  const { sessions, left_out, only_counted } = record(answer);
  if (!Array.isArray(sessions)) throw new BadAnswer('the list of sessions is missing');
  return {
    sessions: list(sessions).map(parseSession),
    leftOut: number(left_out) ?? 0,
    onlyCounted: number(only_counted) ?? 0,
  };
}

function parseSession(session: Record<string, unknown>): Session {
  const id = number(session.id);
  if (id === null) throw new BadAnswer('a session without a number');
  const ended = session.ended == null ? null : record(session.ended);
  return {
    id,
    action: session.action === 'publish' ? 'publish' : 'play',
    protocol: text(session.protocol) ?? 'unknown',
    peer: text(session.peer),
    since: date(session.since),
    bytes: number(session.bytes) ?? 0,
    behind: number(session.behind_seconds),
    rendition: text(session.rendition),
    ended: ended && { at: date(ended.at), reason: text(ended.reason) },
  };
}

/** Reads the answer of `GET /api/v1/history`. */
export function parseNodeHistory(answer: unknown): NodeHistory {
  const history = record(answer);
  return {
    at: times(history.at),
    processors: number(history.processors) ?? 1,
    processorsUsed: values(history.processors_used),
    viewers: Object.entries(record(history.viewers ?? {})).map(([delivery, counts]) => ({
      delivery,
      counts: values(counts),
    })),
    bitsPerSecond: values(history.bits_per_second),
    memory: values(history.memory),
    liveMemory: values(history.live_memory),
  };
}

/** Reads the answer of `GET /api/v1/history?stream=…`. */
export function parseStreamHistory(answer: unknown): StreamHistory {
  const history = record(answer);
  return {
    at: times(history.at),
    viewers: values(history.viewers),
    bitsPerSecond: values(history.bits_per_second),
    frameRate: values(history.frame_rate),
    keyframeDistance: values(history.keyframe_distance_seconds),
    audioOffset: values(history.audio_offset_seconds),
  };
}

function times(value: unknown): number[] {
  if (!Array.isArray(value)) throw new BadAnswer('the times of the samples are missing');
  return value.map((time) => number(time) ?? 0);
}

function values(value: unknown): (number | null)[] {
  return Array.isArray(value) ? value.map(number) : [];
}

/** A valid time, or null. */
export function date(value: unknown): Date | null {
  const parsed = new Date(text(value) ?? Number.NaN);
  return Number.isNaN(parsed.getTime()) ? null : parsed;
}
