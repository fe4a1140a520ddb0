import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { leaveEnds } from './stranded';

/** A video element that seeks to `currentTime`, with these buffered ranges. */
function seeking(currentTime: number, ranges: [number, number][]) {
  const buffered = {
    length: ranges.length,
    start: (i: number) => ranges[i]?.[0] ?? Number.NaN,
    end: (i: number) => ranges[i]?.[1] ?? Number.NaN,
  };
  return { seeking: true, currentTime, buffered };
}

/** Buffered media with a hole. */
const HOLE: [number, number][] = [
  [3, 9.939],
  [10.248, 12],
];

/** Watches over such an element. Returns a function that stops this. */
function watchOver(video: ReturnType<typeof seeking>): () => void {
  const stop = new AbortController();
  leaveEnds(video as unknown as HTMLVideoElement, stop.signal);
  return () => stop.abort();
}

/** Where such an element stands after two seconds. */
function afterTwoSeconds(video: ReturnType<typeof seeking>): number {
  const stop = watchOver(video);
  vi.advanceTimersByTime(2_000);
  stop();
  return video.currentTime;
}

describe('a seek that stands where buffered media end', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('goes on behind the hole, after half a second', () => {
    const video = { ...seeking(9.939, HOLE), seeking: false };
    const stop = watchOver(video);
    vi.advanceTimersByTime(3_000);
    video.seeking = true;
    vi.advanceTimersByTime(400);
    expect(video.currentTime).toBe(9.939);
    vi.advanceTimersByTime(200);
    expect(video.currentTime).toBe(10.248);
    stop();
  });

  it('waits where nothing is buffered behind', () => {
    expect(afterTwoSeconds(seeking(9.939, HOLE.slice(0, 1)))).toBe(9.939);
  });

  it('leaves other seeks alone, and playback', () => {
    expect(afterTwoSeconds(seeking(10.1, HOLE))).toBe(10.1);
    expect(afterTwoSeconds({ ...seeking(9.939, HOLE), seeking: false })).toBe(9.939);
  });

  it('stops when it is told to', () => {
    const video = seeking(9.939, HOLE);
    watchOver(video)();
    vi.advanceTimersByTime(2_000);
    expect(video.currentTime).toBe(9.939);
  });
});
