import { expect, it } from 'vitest';
import { BadAnswer } from './api';
import { parseCluster } from './cluster';

it('reads what the API promises', () => {
  const b = { name: 'b', zone: 'us', address: '', heard_seconds: 40 };
  const answer = {
    node: 'a',
    nodes: [
      {
        name: 'a',
        zone: 'eu',
        address: 'http://a.example',
        ready: true,
        load: 0.25,
        viewers: 7,
        streams: 1,
        copies: 2,
        heard_seconds: 0.5,
      },
    ],
    gone: [b],
    streams: [{ name: 'live/x', node: 'a', live: true, copies: [{ node: 'c', behind_seconds: 0.2 }] }],
    streams_left_out: 3,
  };
  expect(parseCluster(answer)).toEqual({
    node: 'a',
    nodes: [
      {
        name: 'a',
        zone: 'eu',
        address: 'http://a.example',
        ready: true,
        load: 0.25,
        viewers: 7,
        streams: 1,
        copies: 2,
        heard: 0.5,
      },
    ],
    gone: [{ name: 'b', zone: 'us', address: null, heard: 40 }],
    streams: [{ name: 'live/x', node: 'a', live: true, copies: [{ node: 'c', behind: 0.2 }] }],
    leftOut: 3,
  });
});

it('refuses what is no answer, and links only to http and https', () => {
  for (const answer of [null, [], {}, { nodes: [{}] }, { nodes: [], streams: [{}] }])
    expect(() => parseCluster(answer)).toThrow(BadAnswer);
  const [node] = parseCluster({ nodes: [{ name: 'a', address: 'javascript:alert(1)' }] }).nodes;
  expect(node).toMatchObject({ address: null, load: null, ready: false });
});
