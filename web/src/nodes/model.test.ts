import { describe, expect, it } from 'vitest';
import { parseCluster } from '../shared/cluster';
import { ago, changes, percent, standing, stateOf, summary } from './model';

const cluster = (names: string[], more = {}) =>
  parseCluster({ nodes: names.map((name) => ({ name })), ...more });

describe('the nodes', () => {
  it('are ready, drain, or are silent', () => {
    expect(stateOf({ ready: true, heard: 0.9 })).toBe('ready');
    expect(stateOf({ ready: false, heard: 0.9 })).toBe('draining');
    expect(stateOf({ ready: true, heard: 4 })).toBe('silent');
  });

  it('are summed up', () => {
    const nodes = [
      { name: 'a', viewers: 3 },
      { name: 'b', viewers: 1_200 },
    ];
    const streams = [
      { name: 'live/x', live: true },
      { name: 'live/y', live: false },
    ];
    expect(summary(parseCluster({ nodes, streams }))).toBe('2 nodes, 1 live stream, 1,203 viewers');
    expect(summary(parseCluster({ nodes: [], streams, streams_left_out: 5 }))).toBe(
      '0 nodes, over 1 live streams, 0 viewers',
    );
  });

  it('are spoken of when they come and go, and only then', () => {
    expect(changes(cluster(['a']), cluster(['a']))).toBeNull();
    expect(changes(cluster(['a', 'b']), cluster(['b', 'c']))).toBe('c has come. a has gone.');
  });

  it('were heard some time ago', () => {
    expect([0.4, 12.9, 59.9, 200].map(ago)).toEqual(['now', '12 s ago', '59 s ago', '3 min ago']);
  });

  it('have a load, if they say it', () => {
    expect([null, 0, 0.124, 1].map(percent)).toEqual(['–', '0 %', '12 %', '100 %']);
  });
});

it('a copy is up to date, or behind', () => {
  expect(standing(0.6)).toEqual({ late: false, words: 'up to date' });
  expect(standing(3.21)).toEqual({ late: true, words: '3.2 s behind' });
});
