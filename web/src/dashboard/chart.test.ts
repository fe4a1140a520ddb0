import { describe, expect, it } from 'vitest';
import { nearestOf, Plot, rangeOf, runsOf, scaleOf, spanOf, stacked } from './chart';

describe('the axis of values', () => {
  it('ends at a round figure, and has few marks', () => {
    expect(scaleOf([3, 17, null], 0)).toEqual({ low: 0, high: 20, ticks: [0, 5, 10, 15, 20] });
    expect(scaleOf([0.29], 0).ticks).toEqual([0, 0.1, 0.2, 0.3]);
    expect(scaleOf([29.97], 0).ticks).toEqual([0, 10, 20, 30]);
    expect(scaleOf([1e9], 0).ticks).toEqual([0, 2.5e8, 5e8, 7.5e8, 1e9]);
    for (let value = 0.001; value < 1e12; value *= 1.7) {
      const { high, ticks } = scaleOf([value], 0);
      expect(high).toBeGreaterThanOrEqual(value * 0.999_99);
      expect(ticks.length).toBeGreaterThanOrEqual(2);
      expect(ticks.length).toBeLessThanOrEqual(6);
    }
  });

  it('counts in whole numbers', () => {
    expect(scaleOf([1], 0, true).ticks).toEqual([0, 1]);
    expect(scaleOf([3], 0, true).ticks).toEqual([0, 1, 2, 3]);
    expect(scaleOf([9], 0, true).ticks).toEqual([0, 3, 6, 9]);
  });

  it('reaches the least that is asked for, also without values', () => {
    expect(scaleOf([], 4, true)).toEqual({ low: 0, high: 4, ticks: [0, 1, 2, 3, 4] });
    expect(scaleOf([0], 0).ticks).toContain(0);
  });

  it('has 0 in the middle if values are below it', () => {
    expect(scaleOf([-0.02, 0.01], 0.1).ticks).toEqual([-0.1, -0.05, 0, 0.05, 0.1]);
  });
});

it('shows the least time that has all samples', () => {
  expect([[], [5], [0, 241], [0, 3595], [0, 9000]].map(spanOf)).toEqual([240, 240, 600, 3600, 3600]);
});

describe('a line', () => {
  const box = { left: 0, right: 100, top: 0, bottom: 10 };

  it('is broken where samples are missing or not known', () => {
    expect(runsOf([0, 5, 10, 40, 45, 50], [1, 1, 1, 1, null, 1])).toEqual([
      [0, 2],
      [3, 3],
      [5, 5],
    ]);
    expect(runsOf([], [])).toEqual([]);
    // A sample that came late is none that is missing.
    expect(runsOf([0, 11], [1, 1])).toEqual([[0, 1]]);
  });

  it('ends at the newest sample, and a lone sample is a point', () => {
    const plot = new Plot([0, 10, 100], 100, scaleOf([10], 0), box);
    expect(plot.line([0, 10, 5])).toBe('M0 10L10 0M100 5h0.01');
    expect(plot.line([null, null, null])).toBe('');
  });

  it('encloses the area above another', () => {
    const plot = new Plot([90, 100], 100, scaleOf([10], 0), box);
    expect(plot.area([10, 5], [5, 0])).toBe('M90 0L100 5 100 10 90 5Z');
    expect(plot.area([10, 5], [])).toBe('M90 0L100 5 100 10 90 10Z');
  });

  it('stands on those below it', () => {
    const lines = [
      { id: 'a', label: 'A', values: [1, null] },
      { id: 'b', label: 'B', values: [2, 3] },
    ];
    expect(stacked(lines).map(({ values }) => values)).toEqual([
      [1, 0],
      [3, 3],
    ]);
  });

  it('is read where the pointer is', () => {
    const plot = new Plot([0, 50, 100], 100, scaleOf([10], 0), box);
    expect([3, 52, 100, 30].map((x) => plot.nearest(x))).toEqual([0, 1, 2, null]);
    expect(nearestOf([], 0, 1)).toBeNull();
  });

  it('is summed up by its least and its greatest value', () => {
    expect(rangeOf([3, null, 1, 2])).toEqual({ least: 1, greatest: 3 });
    expect(rangeOf([null])).toBeNull();
  });
});
