import { expect, it } from 'vitest';
import { addEntries, type Entry, important, MOST, parseEntry } from './server-log';

const tone = (line: string) => parseEntry(JSON.stringify({ line }))?.tone;

it('tells warnings and errors from other lines, as text and as JSON', () => {
  expect(tone('2026-11-21T20:01:00.250Z  INFO headwater: a WARN that a peer wrote')).toBeNull();
  expect(tone('2026-11-21T20:01:00.250Z  WARN headwater: slow')).toBe('warning');
  expect(tone('2026-11-21T20:01:00.250Z ERROR headwater: gone')).toBe('bad');
  expect(tone('{"time":"2026-11-21T20:01:00.250Z","level":"ERROR","target":"x"}')).toBe('bad');
  expect(tone('{"time":"2026-11-21T20:01:00.250Z","level":"INFO","message":"WARN"}')).toBeNull();
});

it('leaves out what is no line', () => {
  expect(parseEntry('no JSON')).toBeNull();
  expect(parseEntry('{"line":7}')).toBeNull();
  expect(parseEntry('[]')).toBeNull();
});

it('keeps the newest lines, and they come first', () => {
  const entry = (key: number): Entry => ({ key, text: '', tone: key % 2 ? 'bad' : null });
  const lines = addEntries(
    [entry(0)],
    Array.from({ length: MOST }, (_, key) => entry(key + 1)),
  );
  expect([lines[0]?.key, lines.length, lines.at(-1)?.key]).toEqual([MOST, MOST, 1]);
  expect(lines.filter(important).length).toBe(MOST / 2);
});
