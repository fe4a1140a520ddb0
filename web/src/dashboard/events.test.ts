import { expect, it } from 'vitest';
import { add, chosen, type Kind, type Line, MOST, parseEvent } from './events';

const at = '2026-11-21T20:01:00.250Z';
const said = (event: object) => {
  const line = parseEvent(JSON.stringify({ id: 1, at, ...event }));
  return line && `${line.kind} ${line.tone}: ${line.stream ?? ''} ${line.text}`;
};

it('puts events into words', () => {
  const stream = 'live/a';
  expect(said({ event: 'stream_started', stream })).toBe('streams good: live/a is live');
  expect(said({ event: 'stream_lost', stream })).toBe('streams warning: live/a has lost its publisher');
  expect(said({ event: 'stream_ended', stream })).toBe('streams calm: live/a has ended');
  const refused = { event: 'publisher_refused', stream, protocol: 'whip', reason: 'the name is taken' };
  expect(said(refused)).toBe('refused bad: live/a refused a publisher by WHIP: the name is taken');
  expect(said({ ...refused, peer: '192.0.2.1:7' })).toContain('a publisher from 192.0.2.1:7 by WHIP');
  expect(said({ event: 'viewer_limit', limit: 'rtmp.max_players', refused: 2 })).toBe(
    'limits bad:  2 viewers refused: rtmp.max_players is reached',
  );
  const slow = { event: 'slow_viewer', stream, delivery: 'push', action: 'closed_stalled' };
  expect(said(slow)).toBe('slow warning: live/a Push viewer disconnected, because it took nothing');
  expect(said({ ...slow, action: 'skipped' })).toContain('moved on to the newest keyframe');
  expect(parseEvent(JSON.stringify({ event: 'stream_ended', at }))?.at).toEqual(new Date(at));
});

it('tells how many events the server left out before one', () => {
  const refused = {
    event: 'publisher_refused',
    stream: 'live/a',
    protocol: 'whip',
    reason: 'the name is taken',
  };
  expect(said({ ...refused, left_out: 1_200 })).toMatch(
    /: the name is taken \(and 1,200 more like it before\)$/,
  );
  expect(said({ ...refused, left_out: 0 })).toMatch(/: the name is taken$/);
});

it('leaves out what it does not know', () => {
  expect(said({ event: 'something_new' })).toBeNull();
  expect(parseEvent('no JSON')).toBeNull();
  expect(parseEvent('[]')).toBeNull();
});

it('keeps the newest lines of each kind, so that many of one leave room for the others', () => {
  let key = 0;
  const line = (kind: Kind): Line => ({ key: key++, at: null, kind, tone: 'calm', stream: null, text: '' });
  let lines = add([], [line('streams'), line('streams')]);
  expect(lines.map(({ key }) => key)).toEqual([1, 0]);
  lines = add(
    lines,
    Array.from({ length: 2 * MOST }, () => line('slow')),
  );
  expect(lines).toHaveLength(MOST + 2);
  expect(chosen(lines, new Set())).toHaveLength(MOST);
  expect(chosen(lines, new Set(['slow'])).map(({ key }) => key)).toEqual([1, 0]);
});
