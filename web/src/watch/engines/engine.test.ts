import { expect, it } from 'vitest';
import { httpFailure, playerOf } from './engine';

it('says in words why bytes did not come', () => {
  expect(httpFailure('The playlist', 404)).toBe('The playlist is not on the server (404).');
  expect(httpFailure('The playlist', 503)).toBe('The playlist could not be loaded: the server answered 503.');
  expect(httpFailure('A segment', undefined)).toContain('did not answer');
  expect(httpFailure('A segment', 0)).toContain('did not answer');
  expect(httpFailure('The manifest', 422)).toBe('The server cannot make the manifest of this file (422).');
});

it('has the browser itself play HLS where there is no MediaSource', () => {
  for (const via of ['push', 'dash', 'llhls', 'hls'] as const) {
    expect(playerOf(via, false)).toEqual({ player: 'native', plays: 'hls' });
    expect(playerOf(via, true)).toEqual({ player: via, plays: via });
  }
  // The one needs no MediaSource, and the other says that it needs it.
  for (const via of ['webrtc', 'file'] as const) {
    expect(playerOf(via, false)).toEqual({ player: via, plays: via });
  }
});
