import { describe, expect, it } from 'vitest';
import { pastGap, rangeAt } from './gaps';

const ranges = [
  { start: 1, end: 2 },
  { start: 3, end: 4 },
];

describe('pastGap', () => {
  it.each([
    ['in a range', 1.5, null],
    ['a little before a range', 0.98, null],
    ['long before the first', 0, 1.001],
    ['at the end of one that another follows', 1.99, 3.001],
    ['in a hole', 2.5, 3.001],
    ['at the end of the last', 3.99, null],
    ['behind the last', 5, null],
  ])('%s', (_where, time, to) => {
    expect(pastGap(ranges, time)).toBe(to);
  });

  it('has nowhere to go where nothing is buffered', () => {
    expect(pastGap([], 1)).toBeNull();
  });
});

it('finds the range that is being played', () => {
  expect(rangeAt(ranges, 1)).toBe(ranges[0]);
  expect(rangeAt(ranges, 2.98)).toBe(ranges[1]);
  expect(rangeAt(ranges, 2.5)).toBeNull();
  expect(rangeAt(ranges, 4)).toBeNull();
});
