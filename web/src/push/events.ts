/** A video rendition, as the server describes it. */
export interface Rendition {
  name: string;
  /** In bit/s; 0 until the server has measured it. */
  bitrate: number;
  /** As `1280x720`; null if the server does not know it. */
  resolution: string | null;
  /** As in RFC 6381. */
  codecs: string;
}

/** The server's first event. */
export interface Hello {
  event: 'hello';
  renditions: Rendition[];
  /** The first rendition; null if there is only audio. */
  rendition: string | null;
  /** Audio codecs, as in RFC 6381; null without audio. */
  audio: string | null;
  /** Duration of a file in seconds; null for a broadcast. */
  duration: number | null;
}

export type ServerEvent =
  | Hello
  | { event: 'rendition'; rendition: string }
  | { event: 'discontinuity'; reason: string }
  /** `every`: seconds between these events. */
  | { event: 'alive'; every: number }
  | { event: 'end' }
  | { event: 'error'; code: string; message: string };

/** Reads a text message of the server. Null for unknown events: a later server may send more. */
export function parseEvent(text: string): ServerEvent | null {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    return null;
  }
  const { event, ...rest } = record(said);
  switch (event) {
    case 'hello':
      return hello(rest);
    case 'rendition':
      return typeof rest.rendition === 'string' ? { event, rendition: rest.rendition } : null;
    case 'discontinuity':
      return { event, reason: string(rest.reason) ?? '' };
    case 'alive':
      return { event, every: number(rest.every) ?? 0 };
    case 'end':
      return { event };
    case 'error':
      return { event, code: string(rest.code) ?? '', message: string(rest.message) ?? '' };
    default:
      return null;
  }
}

function hello(said: Record<string, unknown>): Hello {
  const renditions = Array.isArray(said.renditions) ? said.renditions : [];
  const duration = number(said.duration);
  return {
    event: 'hello',
    renditions: renditions.map(record).map(({ name, bitrate, resolution, codecs }) => ({
      name: string(name) ?? '',
      bitrate: number(bitrate) ?? 0,
      resolution: string(resolution),
      codecs: string(codecs) ?? '',
    })),
    rendition: string(said.rendition),
    audio: string(record(said.audio).codecs),
    duration: duration !== null && duration > 0 ? duration : null,
  };
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function string(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

function number(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}
