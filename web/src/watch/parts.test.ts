import { expect, test } from 'vitest';
import { PartTimes } from './parts';

/** A player whose newest parts of a quarter of a second took these times, in milliseconds. */
function player(...took: number[]): PartTimes {
  const times = new PartTimes();
  for (const one of took) times.arrived(one, 250);
  return times;
}

const each = (count: number, took: number): number[] => new Array(count).fill(took);

/** Whether a player leaves when it waits for media at these times, in milliseconds. */
const leaves = (times: PartTimes, ...at: number[]) => at.map((now) => times.waiting(now)).includes(true);

test('a player leaves at the third wait if parts take longer than they last', () => {
  expect(leaves(player(...each(60, 300)), 1_000, 5_000)).toBe(false);
  expect(leaves(player(...each(60, 300)), 1_000, 5_000, 9_000)).toBe(true);
});

test('waits of another cause keep a player', () => {
  expect(leaves(player(...each(60, 200)), 1_000, 2_000, 3_000, 4_000, 5_000)).toBe(false);
});

test('waits long after one another keep a player', () => {
  expect(leaves(player(...each(60, 300)), 1_000, 20_000, 40_000, 60_000)).toBe(false);
});

test('a busy machine, which gets some parts late and others at once, keeps a player', () => {
  const times = player(...each(20, 2_000).flatMap((late) => [late, late, 40]));
  expect(leaves(times, 1_000, 2_000, 3_000)).toBe(false);
});

test('a player that has begun keeps on until enough parts have come', () => {
  expect(leaves(player(...each(29, 2_000)), 1_000, 2_000, 3_000)).toBe(false);
});

test('a network that gets faster is soon believed', () => {
  expect(leaves(player(...each(40, 500), ...each(11, 50)), 1_000, 2_000, 3_000)).toBe(false);
});
