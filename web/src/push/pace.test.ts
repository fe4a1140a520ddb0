import { describe, expect, it } from 'vitest';
import { FASTEST, Pace, SLOWEST } from './pace';

interface Course {
  /** Seconds behind live at the end, and at every step. */
  latency: number;
  rates: number[];
  least: number;
}

/** Plays `seconds` of a stream with chunks of `chunk` seconds that arrive up to `jitter` late. */
function play(pace: Pace, { latency = 0.5, chunk = 0.2, jitter = 0, seconds = 60, from = 0 } = {}): Course {
  const rates: number[] = [];
  let least = Number.POSITIVE_INFINITY;
  let seed = 7;
  const chance = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  let rate = 1;
  for (let t = 0; t < seconds; t += chunk) {
    const now = from + t * 1000;
    // Just before a chunk arrives, the newest media are one chunk old, and late media are missing.
    const level = latency - chunk - jitter * chance();
    least = Math.min(least, level);
    pace.measured(now, level);
    rate = pace.rate(now);
    rates.push(rate);
    latency -= (rate - 1) * chunk;
  }
  return { latency, rates, least };
}

describe('Pace', () => {
  it.each([0.033, 0.2, 1])('brings a viewer to the reserve and one chunk of %d s behind live', (chunk) => {
    const { latency, rates } = play(new Pace(0.1, 2), { latency: 1.4, chunk, seconds: 120 });
    expect(latency).toBeGreaterThan(0.1 + chunk - 0.02);
    expect(latency).toBeLessThan(0.1 + chunk + 0.06);
    expect(rates.at(-1)).toBe(1);
  });

  it('goes back from live where chunks come too unevenly', () => {
    const course = play(new Pace(0.1, 2), { latency: 0.25, jitter: 0.2, seconds: 60 });
    expect(course.latency).toBeGreaterThan(0.42);
    expect(course.latency).toBeLessThan(0.62);
    const later = play(new Pace(0.1, 2), { latency: course.latency, jitter: 0.2, seconds: 60 });
    expect(later.least).toBeGreaterThan(0.02);
  });

  it('keeps to rates that nobody hears, in steps of a hundredth', () => {
    const rates = [
      ...play(new Pace(0.1, 2), { latency: 3 }).rates,
      ...play(new Pace(0.1, 2), { latency: 0.2, jitter: 1 }).rates,
    ];
    expect(Math.max(...rates)).toBe(FASTEST);
    expect(Math.min(...rates)).toBe(SLOWEST);
    for (const rate of rates) expect(Math.round(rate * 100)).toBeCloseTo(rate * 100, 9);
  });

  it('does not change its mind all the time', () => {
    const { rates } = play(new Pace(0.1, 2), { latency: 0.9, jitter: 0.02, seconds: 120 });
    const settled = rates.slice(-200);
    const changes = settled.filter((rate, i) => i > 0 && rate !== settled[i - 1]).length;
    expect(changes).toBeLessThan(10);
  });

  it('keeps more after a stall, within bounds, and less again as time passes', () => {
    const pace = new Pace(0.1, 0.5);
    expect(pace.reserve(0)).toBeCloseTo(0.1);
    pace.stalled(1_000);
    expect(pace.reserve(1_000)).toBeCloseTo(0.2);
    for (let i = 0; i < 10; i++) pace.stalled(2_000 + i);
    expect(pace.reserve(2_010)).toBeCloseTo(0.5, 2);
    expect(pace.reserve(62_010)).toBeLessThan(0.26);
    expect(pace.reserve(600_000)).toBeCloseTo(0.1, 2);
  });

  it('never keeps less than the least', () => {
    const pace = new Pace(3, 2);
    pace.stalled(1_000);
    expect(pace.reserve(1_000)).toBe(3);
  });

  it('does nothing before it knows how media come', () => {
    const pace = new Pace(0.1, 2);
    pace.measured(0, 9);
    expect(pace.rate(0)).toBe(1);
    expect(pace.isTooFar(0)).toBe(false);
    pace.measured(600, 9);
    expect(pace.rate(600)).toBe(FASTEST);
    expect(pace.isTooFar(600)).toBe(true);
    pace.reset();
    expect(pace.isTooFar(700)).toBe(false);
    expect(pace.excess(700)).toBeNull();
  });

  it('jumps only where the way is long', () => {
    const pace = new Pace(0.1, 2);
    for (let now = 0; now <= 1_000; now += 100) pace.measured(now, 1);
    expect(pace.isTooFar(1_000)).toBe(false);
    for (let now = 1_100; now <= 3_500; now += 100) pace.measured(now, 1.2);
    expect(pace.isTooFar(3_500)).toBe(true);
  });

  it('jumps sooner where the video has just begun', () => {
    const pace = new Pace(0.1, 2);
    expect(pace.beganTooFar(0, 0.1)).toBe(false);
    for (let now = 0; now <= 1_000; now += 100) pace.measured(now, 0.55);
    expect([pace.beganTooFar(1_000, 0.1), pace.isTooFar(1_000)]).toEqual([true, false]);
    // A larger reserve is not a delay.
    expect(pace.beganTooFar(1_000, 0.5)).toBe(false);
  });

  it('keeps more of it from when it is told to, and no more than the most', () => {
    const pace = new Pace(0.1, 0.8);
    expect(pace.reserve(0)).toBeCloseTo(0.1);
    for (let n = 0; n < 20; n++) pace.stalled(0);
    expect(pace.reserve(0)).toBeCloseTo(0.8);
    pace.atLeast(0.5);
    expect(pace.reserve(0)).toBeCloseTo(0.8);
    expect(pace.reserve(600_000)).toBeCloseTo(0.5, 3);
    pace.atLeast(1);
    expect(pace.reserve(600_000)).toBe(1);
  });
});
