import { number, record, text } from '../shared/api';
import * as format from '../shared/format';
import { date } from './api';

/** Names of the events, as the API has them. */
export const NAMES = [
  'stream_started',
  'stream_lost',
  'stream_ended',
  'publisher_refused',
  'viewer_limit',
  'slow_viewer',
] as const;

/** What an event is about. The log can be limited to some of these. */
export type Kind = 'streams' | 'refused' | 'limits' | 'slow';

export const KINDS: Record<Kind, string> = {
  streams: 'Streams',
  refused: 'Refused publishers',
  limits: 'Viewer limits',
  slow: 'Slow viewers',
};

/** How an event looks. */
export type Tone = 'good' | 'calm' | 'warning' | 'bad';

/** A line of the log. */
export interface Line {
  /** Counts the lines of this page. The numbers of events begin anew with each start of the server. */
  key: number;
  at: Date | null;
  kind: Kind;
  tone: Tone;
  /** The stream that it is about; null if it is about none. */
  stream: string | null;
  /** What happened, in words that follow the stream's name. */
  text: string;
}

/** As many lines of each kind are kept, and shown at once. */
export const MOST = 100;

/** Reads an event. Null if it is none that this page knows. */
export function parseEvent(data: string): Omit<Line, 'key'> | null {
  let event: Record<string, unknown>;
  try {
    event = record(JSON.parse(data));
  } catch {
    return null;
  }
  const stream = text(event.stream);
  const at = date(event.at);
  // The server tells of so many events of a kind at most, and counts those that it leaves out.
  const leftOut = number(event.left_out) ?? 0;
  const more = leftOut > 0 ? ` (and ${format.whole(leftOut)} more like it before)` : '';
  const line = (kind: Kind, tone: Tone, words: string) => ({ at, kind, tone, stream, text: words + more });
  const from = text(event.peer) === null ? '' : ` from ${text(event.peer)}`;
  switch (event.event) {
    case 'stream_started':
      return line('streams', 'good', 'is live');
    case 'stream_lost':
      return line('streams', 'warning', 'has lost its publisher');
    case 'stream_ended':
      return line('streams', 'calm', 'has ended');
    case 'publisher_refused': {
      const by = format.delivery(text(event.protocol) ?? '');
      return line(
        'refused',
        'bad',
        `refused a publisher${from} by ${by}: ${text(event.reason) ?? 'no reason'}`,
      );
    }
    case 'viewer_limit': {
      const refused = format.counted(number(event.refused) ?? 0, 'viewer');
      return line('limits', 'bad', `${refused} refused: ${text(event.limit) ?? 'a limit'} is reached`);
    }
    case 'slow_viewer': {
      const actions: Record<string, string> = {
        skipped: 'moved on to the newest keyframe',
        closed_behind: 'disconnected, because it stayed behind',
        closed_stalled: 'disconnected, because it took nothing',
      };
      const did = actions[text(event.action) ?? ''] ?? 'too slow';
      return line('slow', 'warning', `${format.delivery(text(event.delivery) ?? '')} viewer${from} ${did}`);
    }
    default:
      return null;
  }
}

/** Adds lines, the newest first, and drops the oldest of a kind of which there are too many. */
export function add(lines: readonly Line[], news: readonly Line[]): Line[] {
  const counts: Partial<Record<Kind, number>> = {};
  return [...[...news].reverse(), ...lines].filter(({ kind }) => {
    const count = (counts[kind] ?? 0) + 1;
    counts[kind] = count;
    return count <= MOST;
  });
}

/** The lines that are shown. */
export function chosen(lines: readonly Line[], hidden: ReadonlySet<Kind>): Line[] {
  return lines.filter(({ kind }) => !hidden.has(kind)).slice(0, MOST);
}
