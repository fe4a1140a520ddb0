import { describe, expect, it } from 'vitest';
import { parseNodeHistory, parseSessions, parseStreamHistory, type Session } from './api';
import { clock, endOf, inPlace, press, type Sorting, sorted } from './sessions';

function sessions(...list: object[]): Session[] {
  return parseSessions({ sessions: list.map((session, index) => ({ id: index + 1, ...session })) }).sessions;
}

const order = (list: Session[]) => list.map(({ id }) => id);

describe('sessions', () => {
  it('are read from the answer', () => {
    const { sessions, leftOut, onlyCounted } = parseSessions({
      sessions: [
        {
          id: 21,
          action: 'play',
          stream: 'live/show',
          protocol: 'push',
          peer: '198.51.100.3:41190',
          since: '2026-11-21T20:03:10.000Z',
          bytes: 71002113,
          behind_seconds: 0.5,
          rendition: 'v0',
          ended: { at: '2026-11-21T20:04:10.000Z', reason: 'kicked' },
        },
        { id: 22, since: 'soon' },
      ],
      left_out: 7,
      only_counted: 3,
    });
    expect([leftOut, onlyCounted]).toEqual([7, 3]);
    expect(sessions[0]).toEqual({
      id: 21,
      action: 'play',
      protocol: 'push',
      peer: '198.51.100.3:41190',
      since: new Date('2026-11-21T20:03:10.000Z'),
      bytes: 71002113,
      behind: 0.5,
      rendition: 'v0',
      ended: { at: new Date('2026-11-21T20:04:10.000Z'), reason: 'kicked' },
    });
    expect(sessions[1]).toMatchObject({ peer: null, since: null, behind: null, ended: null });
    expect(() => parseSessions({})).toThrow('the list of sessions is missing');
    expect(() => parseSessions({ sessions: [{}] })).toThrow('without a number');
  });

  it('are sorted by each column, with the unknown last', () => {
    const list = sessions(
      { peer: '10.0.0.10:5', bytes: 7, since: '2026-11-21T20:03:10Z', protocol: 'push' },
      { peer: '10.0.0.2:5', bytes: 9, behind_seconds: 3, protocol: 'flv' },
      { bytes: 9, behind_seconds: 0.5, since: '2026-11-21T20:01:10Z', protocol: 'push' },
    );
    const by = (key: Sorting['key'], descending = false) => order(sorted(list, { key, descending }));
    expect(by('peer')).toEqual([2, 1, 3]);
    expect(by('peer', true)).toEqual([1, 2, 3]);
    expect(by('bytes')).toEqual([1, 2, 3]);
    expect(by('bytes', true)).toEqual([2, 3, 1]);
    expect(by('behind')).toEqual([3, 2, 1]);
    expect(by('since')).toEqual([3, 1, 2]);
    expect(by('protocol')).toEqual([2, 1, 3]);
    expect(by('rendition', true)).toEqual([1, 2, 3]);
  });

  it('keep their places while their figures grow, and new ones come last', () => {
    const list = sessions({ bytes: 5 }, { bytes: 1 }, { bytes: 9 }, { bytes: 2 });
    expect(order(inPlace(list, [3, 7, 1]))).toEqual([3, 1, 2, 4]);
    expect(order(inPlace([], [3]))).toEqual([]);
  });

  it('are sorted the other way round when a heading is pressed twice', () => {
    const first: Sorting = { key: 'since', descending: false };
    expect(press(first, 'since')).toEqual({ key: 'since', descending: true });
    expect(press(first, 'bytes')).toEqual({ key: 'bytes', descending: true });
    expect(press(first, 'peer')).toEqual({ key: 'peer', descending: false });
  });

  it('say why they ended', () => {
    const [kicked, left, stopped] = sessions(
      { action: 'play', ended: { reason: 'ended by an administrator' } },
      { action: 'play', ended: {} },
      { action: 'publish', ended: {} },
    );
    expect([kicked, left, stopped].map((session) => session && endOf(session))).toEqual([
      'ended by an administrator',
      'it left, or the stream ended',
      'it left',
    ]);
  });
});

describe('figures of the last hour', () => {
  it('are read for the node', () => {
    const history = parseNodeHistory({ at: [5], processors: 2, viewers: { push: [3] }, memory: [null] });
    expect(history.viewers).toEqual([{ delivery: 'push', counts: [3] }]);
    expect(history).toMatchObject({ at: [5], processors: 2, memory: [null], bitsPerSecond: [] });
    expect(() => parseNodeHistory({})).toThrow('the times of the samples are missing');
  });

  it('are read for a stream', () => {
    const history = parseStreamHistory({
      at: [5, 10],
      frame_rate: [null, 30],
      audio_offset_seconds: [0.1, 'x'],
    });
    expect(history.frameRate).toEqual([null, 30]);
    expect(history.audioOffset).toEqual([0.1, null]);
  });
});

it('writes the time of day, and the date of another day', () => {
  const now = new Date(2026, 10, 21, 20, 3);
  expect(clock(new Date(2026, 10, 21, 9, 5, 7), now)).toBe('09:05:07');
  expect(clock(new Date(2026, 10, 20, 9, 5, 7), now)).toBe('Nov 20, 09:05:07');
});
