import { describe, expect, it } from 'vitest';
import { type Band, LOW_LATENCY, Pace, WHOLE_SEGMENTS } from './pace';

/**
 * Plays for `duration` ms from a server with parts of `part` seconds. Returns the course of the
 * latency.
 */
function play(
  start: number,
  target: number,
  part: number,
  duration: number,
  band: Band = LOW_LATENCY,
): { latency: number; rates: Set<number> } {
  const pace = new Pace(band);
  const rates = new Set<number>();
  let latency = start;
  const step = 250;
  for (let now = 0; now < duration; now += step) {
    // Just after a part has arrived, the buffer reaches the live edge. Just before the next, one
    // part is missing.
    const buffer = latency - ((now / 1000) % part) - 0.02;
    const rate = pace.rate(now, latency, target, buffer);
    rates.add(rate);
    latency -= ((rate - 1) * step) / 1000;
  }
  return { latency, rates };
}

describe('Pace', () => {
  it('brings a viewer to the distance the server asks for', () => {
    expect(play(2, 1, 0.2, 40_000).latency).toBeCloseTo(1.03, 1);
  });

  it('never plays slower than normal, nor faster than a tenth above it where live is near', () => {
    for (const rate of play(1.6, 0.6, 0.2, 60_000).rates) {
      expect(rate).toBeGreaterThanOrEqual(1);
      expect(rate).toBeLessThanOrEqual(1.1);
    }
    expect(Math.max(...play(9, 0.6, 0.2, 60_000).rates)).toBe(1.3);
  });

  it.each([4, 5, 6])('brings one who is %d s too far behind within a second of live in 20 s', (behind) => {
    expect(play(0.6 + behind, 0.6, 0.2, 20_000).latency).toBeLessThan(1.6);
    // With whole segments. The newest segment is requested every two seconds.
    expect(play(6 + behind, 6, 2, 20_000, WHOLE_SEGMENTS).latency).toBeLessThan(7);
  });

  it('leaves alone by whole segments who is less than a second too far behind', () => {
    expect([...play(6.8, 6, 2, 20_000, WHOLE_SEGMENTS).rates]).toEqual([1]);
  });

  it('jumps where live is too far to be caught up with, as far as media are buffered', () => {
    const pace = new Pace();
    pace.rate(0, 9, 1, 8.6);
    expect(pace.jump()).toBe(0);
    pace.rate(1_000, 9, 1, 8.6);
    expect(pace.jump()).toBe(8);
    // The list of media has grown by seconds, and they are not loaded yet.
    pace.rate(1_250, 12, 1, 8.3);
    expect(pace.jump()).toBeCloseTo(7.85);
    pace.rate(1_500, 12, 1, 2);
    expect(pace.jump()).toBe(0);
    pace.rate(6_600, 12, 1, 9);
    expect(pace.jump()).toBeGreaterThan(8);
    pace.reset();
    expect(pace.jump()).toBe(0);
  });

  it('stays further behind than asked where parts come too unevenly for less', () => {
    const { latency } = play(2, 0.3, 1, 60_000);
    // At the worst time a whole part is missing. The reserve is what is left then.
    expect(latency).toBeGreaterThan(1.1);
    expect(latency).toBeLessThan(1.6);
  });

  it('waits a second before it believes the buffer', () => {
    const pace = new Pace();
    expect(pace.rate(0, 3, 1, 3)).toBe(1);
    expect(pace.rate(750, 3, 1, 3)).toBe(1);
    expect(pace.rate(1_000, 3, 1, 3)).toBeGreaterThan(1);
  });

  it('stops at once when the buffer has been low', () => {
    const pace = new Pace();
    for (let now = 0; now <= 2_000; now += 250) pace.rate(now, 3, 1, 3);
    expect(pace.rate(2_250, 3, 1, 0.2)).toBe(1);
    expect(pace.rate(2_500, 3, 1, 2)).toBe(1);
  });

  it('does not begin for a small excess', () => {
    const pace = new Pace();
    pace.rate(0, 1.1, 1, 2);
    expect(pace.rate(2_000, 1.1, 1, 2)).toBe(1);
  });

  it('forgets what it saw before an interruption', () => {
    const pace = new Pace();
    for (let now = 0; now <= 2_000; now += 250) pace.rate(now, 3, 1, 3);
    pace.reset();
    expect(pace.rate(2_250, 3, 1, 3)).toBe(1);
  });
});
