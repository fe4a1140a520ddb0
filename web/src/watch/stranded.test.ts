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

/** Where such an element stands after two seconds. */
function afterTwoSeconds(video: ReturnType<typeof seeking>): number {
  const stop = new AbortController();
  leaveEnds(video as unknown as HTMLVideoElement, stop.signal);
  vi.advanceTimersByTime(2_000);
  stop.abort();
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
    const video = seeking(9.939, [
      [3, 9.939],
      [10.248, 12],
    ]);
    const stop = new AbortController();
    leaveEnds(video as unknown as HTMLVideoElement, stop.signal);
    vi.advanceTimersByTime(500);
    expect(video.currentTime).toBe(9.939);
    vi.advanceTimersByTime(200);
    expect(video.currentTime).toBe(10.248);
    stop.abort();
  });

  it('waits where nothing is buffered behind', () => {
    expect(afterTwoSeconds(seeking(9.939, [[3, 9.939]]))).toBe(9.939);
  });

  it('leaves other seeks alone, and playback', () => {
    const ranges: [number, number][] = [
      [3, 9.939],
      [20, 22],
    ];
    expect(afterTwoSeconds(seeking(15, ranges))).toBe(15);
    expect(afterTwoSeconds({ ...seeking(9.939, ranges), seeking: false })).toBe(9.939);
  });

  it('stops when it is told to', () => {
    const video = seeking(9.939, [
      [3, 9.939],
      [10.248, 12],
    ]);
    const stop = new AbortController();
    leaveEnds(video as unknown as HTMLVideoElement, stop.signal);
    stop.abort();
    vi.advanceTimersByTime(2_000);
    expect(video.currentTime).toBe(9.939);
  });
});
