import { expect, it } from 'vitest';
import { endOfBuffered, nextBuffered } from './buffered';

/** An element that shows `currentTime` and has media from and to these times. */
const video = (currentTime: number, ...ranges: [number, number][]) =>
  ({
    currentTime,
    buffered: {
      length: ranges.length,
      start: (i: number) => ranges[i]?.[0],
      end: (i: number) => ranges[i]?.[1],
    },
  }) as unknown as HTMLVideoElement;

it('finds where the media at the picture end', () => {
  expect(endOfBuffered(video(5))).toBe(5);
  expect(endOfBuffered(video(5, [1, 4], [4.5, 8], [8.05, 12], [12.2, 20]))).toBe(8);
  expect(endOfBuffered(video(5, [1, 4], [4.5, 8], [8.05, 12], [12.2, 20]), 0.1)).toBe(12);
  // The playhead is a little before its media, or too far from any.
  expect(endOfBuffered(video(5, [5.05, 8]))).toBe(8);
  expect(endOfBuffered(video(5, [1, 4.95], [5.2, 8]), 0.1)).toBe(5);
});

it('finds where media begin after the picture', () => {
  expect(nextBuffered(video(5, [1, 4], [5.2, 8]))).toBe(5.2);
  expect(nextBuffered(video(5, [1, 8], [9, 12]))).toBe(null);
  expect(nextBuffered(video(5, [1, 4]))).toBe(null);
});
