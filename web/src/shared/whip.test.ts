import { expect, test } from 'vitest';
import { capturedAt, videoClock } from './whip';

test('the clock of the video is read', () => {
  const answer =
    'v=0\r\nm=audio 9\r\na=mediaclk:direct=1\r\nm=video 9\r\na=mid:1\r\na=mediaclk:direct=77\r\n';
  expect(videoClock(answer)).toBe(77);
  expect(videoClock('v=0\r\nm=audio 9\r\na=mediaclk:direct=1\r\n')).toBe(null);
  expect(videoClock('v=0\r\nm=video 9\r\na=mediaclk:sender\r\n')).toBe(null);
});

test('a frame was captured when the clock showed its RTP time', () => {
  const now = 1_795_000_000_000;
  // The clock shows 0 at the beginning of a stream, an hour ago.
  const began = now - 3_600_000;
  const clock = (2 ** 32 - (((began + 2_208_988_800_000) * 90) % 2 ** 32)) % 2 ** 32;
  for (const ago of [0, 150, 3_599_000]) {
    expect(capturedAt((3_600_000 - ago) * 90, clock, now)).toBeCloseTo(now - ago, 3);
    // The same many hours later, when RTP times have begun anew.
    const later = now + 100 * 3_600_000;
    expect(
      capturedAt(((103 * 3_600_000 - ago) * 90 - 2 * 3_600_000 * 90) % 2 ** 32, clock, later),
    ).toBeCloseTo(later - ago, 3);
  }
  // A frame that seems to come a little early.
  expect(capturedAt(3_600_020 * 90, clock, now)).toBeCloseTo(now + 20, 3);
});
