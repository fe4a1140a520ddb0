import Hls from 'hls.js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { goOnWhereItStands } from './hls';

/** For how long the page has been held in all: it ran nothing in that time. */
let held = 0;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval'] });
  held = 0;
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => now() + held);
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

/** hls.js whose playlists end at `edge`, and an element that has media up to `end`, in seconds. */
function player({ edge, end }: { edge: number; end: number }) {
  const listeners = new Map<string, (event: string, data: unknown) => void>();
  const details = { live: true, edge };
  const hls = {
    on: (event: string, listener: (event: string, data: unknown) => void) => listeners.set(event, listener),
    trigger: vi.fn(),
    levels: [{ details }],
    currentLevel: 0,
    audioTracks: [{ details }],
    audioTrack: 0,
    mainForwardBufferInfo: { end },
    audioForwardBufferInfo: { end },
  };
  const video = {
    currentTime: end,
    paused: false,
    seeking: false,
    ended: false,
    readyState: 2,
    buffered: { length: 1, start: () => 0, end: () => end },
  };
  const stop = goOnWhereItStands(hls as unknown as Hls, video as unknown as HTMLVideoElement);
  return {
    details,
    video,
    stop,
    tell: (event: string, data: unknown) => listeners.get(event)?.(event, data),
  };
}

describe('a page whose hls.js stands still', () => {
  it('goes on within half a second where playlists name newer media and none is asked for', () => {
    const { video, stop } = player({ edge: 18.8, end: 18.005 });
    vi.advanceTimersByTime(500);
    // Within the next part, which hls.js then asks for.
    expect(video.currentTime).toBeCloseTo(18.055);
    stop();
  });

  it('waits where there is nothing newer, and goes on once there is', () => {
    const { details, video, stop } = player({ edge: 18.005, end: 18.005 });
    vi.advanceTimersByTime(5_000);
    expect(video.currentTime).toBe(18.005);
    details.edge = 18.2;
    vi.advanceTimersByTime(100);
    expect(video.currentTime).toBeCloseTo(18.055);
    stop();
  });

  it('waits for media on their way, and ends a request without an answer after 1.5 s', () => {
    const { video, stop, tell } = player({ edge: 18.8, end: 18.005 });
    const abortRequests = vi.fn();
    const loader = { context: {}, stats: { loading: { first: 0 } } };
    const frag = { type: 'main', start: 18.005, loader, abortRequests };
    tell(Hls.Events.FRAG_LOADING, { frag });
    vi.advanceTimersByTime(1_400);
    expect(video.currentTime).toBe(18.005);
    expect(abortRequests).not.toHaveBeenCalled();
    vi.advanceTimersByTime(200);
    expect(abortRequests).toHaveBeenCalledTimes(1);
    stop();
  });

  it('ends no request because something else held the page', () => {
    const { stop, tell } = player({ edge: 18.8, end: 18.005 });
    const abortRequests = vi.fn();
    const loader = { context: {}, stats: { loading: { first: 0 } } };
    tell(Hls.Events.FRAG_LOADING, { frag: { type: 'main', start: 18.005, loader, abortRequests } });
    for (let i = 0; i < 5; i++) {
      held += 1_000;
      vi.advanceTimersByTime(100);
    }
    expect(abortRequests).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1_500);
    expect(abortRequests).toHaveBeenCalledTimes(1);
    stop();
  });
});
