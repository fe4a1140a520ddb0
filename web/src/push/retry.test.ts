import { describe, expect, it } from 'vitest';
import { framing, retryDelay } from './retry';

describe('retryDelay', () => {
  it('doubles, up to a bound', () => {
    const delays = [0, 1, 2, 3, 4, 5, 6, 100].map((attempt) => retryDelay(attempt, 0));
    expect(delays).toEqual([250, 500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
  });

  it('is up to half less by chance', () => {
    expect(retryDelay(3, 1)).toBe(1_000);
    for (let i = 0; i < 100; i++) {
      const delay = retryDelay(2);
      expect(delay).toBeGreaterThan(500 - 1e-9);
      expect(delay).toBeLessThanOrEqual(1_000);
    }
  });
});

it('counts what a WebSocket adds to a message', () => {
  expect([0, 125, 126, 65_535, 65_536, 5_000_000].map(framing)).toEqual([2, 2, 4, 4, 10, 10]);
});
