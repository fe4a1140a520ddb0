import type { Session } from './api';

/** What a table of sessions can be sorted by. */
export type Key = 'protocol' | 'peer' | 'since' | 'bytes' | 'behind' | 'rendition';

export interface Sorting {
  key: Key;
  descending: boolean;
}

/** Puts `2` before `10`, also within addresses. */
const words = new Intl.Collator('en', { numeric: true });

/** Sorts sessions. What is not known comes last either way, and equal ones by their number. */
export function sorted(sessions: readonly Session[], { key, descending }: Sorting): Session[] {
  const value = (session: Session) => (key === 'since' ? (session.since?.getTime() ?? null) : session[key]);
  return [...sessions].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null) || one.id - other.id;
    const order =
      typeof a === 'number' && typeof b === 'number' ? a - b : words.compare(String(a), String(b));
    return (descending ? -order : order) || one.id - other.id;
  });
}

/**
 * Sorts sessions as they were sorted before, with new ones at the end: rows do not change places because their figures
 * grow. `order` has the numbers of the sessions.
 */
export function inPlace(sessions: readonly Session[], order: readonly number[]): Session[] {
  const known = new Map(sessions.map((session) => [session.id, session]));
  const kept: Session[] = [];
  for (const id of order) {
    const session = known.get(id);
    if (session) kept.push(session);
    known.delete(id);
  }
  return [...kept, ...known.values()];
}

/** The next sorting when the heading of a column is pressed. */
export function press(sorting: Sorting, key: Key): Sorting {
  if (sorting.key === key) return { key, descending: !sorting.descending };
  // Who gets the most, and who is furthest behind, is of interest.
  return { key, descending: key === 'bytes' || key === 'behind' };
}

/** Why a session ended, in words. */
export function endOf({ ended, action }: Session): string {
  if (ended?.reason) return ended.reason;
  return action === 'publish' ? 'it left' : 'it left, or the stream ended';
}

/** The time of day, as `22:31:05`; with the date if that is not today's. */
export function clock(time: Date, now: Date): string {
  const pad = (part: number) => String(part).padStart(2, '0');
  const day = [time.getHours(), time.getMinutes(), time.getSeconds()].map(pad).join(':');
  if (time.toDateString() === now.toDateString()) return day;
  const month = time.toLocaleDateString('en', { month: 'short', day: 'numeric' });
  return `${month}, ${day}`;
}
