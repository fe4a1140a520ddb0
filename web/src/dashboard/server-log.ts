import { record, text } from '../shared/api';
import type { Tone } from './events';

/** A line of the server's log. */
export interface Entry {
  /** Counts the lines of this page. */
  key: number;
  text: string;
  /** How it looks. Null for a line that needs no attention. */
  tone: Tone | null;
}

/** As many lines are kept and shown. */
export const MOST = 200;

/** The level stands behind the time, as text or in JSON. */
const LEVEL = /^(?:\S+\s+|\{"time":"[^"]*","level":")(ERROR|WARN)\b/;

/** Reads a line. Null if it is none. */
export function parseEntry(data: string): Omit<Entry, 'key'> | null {
  let line: string | null;
  try {
    line = text(record(JSON.parse(data)).line);
  } catch {
    return null;
  }
  if (line === null) return null;
  const level = LEVEL.exec(line)?.[1];
  return { text: line, tone: level === 'ERROR' ? 'bad' : level === 'WARN' ? 'warning' : null };
}

/** Adds lines, the newest first, and drops the oldest. */
export function addEntries(lines: readonly Entry[], news: readonly Entry[]): Entry[] {
  return [...[...news].reverse(), ...lines].slice(0, MOST);
}

/** Whether a line is a warning or an error. */
export const important = ({ tone }: Entry) => tone !== null;
