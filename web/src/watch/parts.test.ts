import { expect, test } from 'vitest';
import { PartTimes } from './parts';

/** A player that got `count` parts of a quarter of a second, each after `took` milliseconds. */
function player(took: number, count = 20): PartTimes {
  const times = new PartTimes();
  for (let i = 0; i < count; i++) times.arrived(took, 250);
  return times;
}

test('a player leaves at the second wait if parts take longer than they last', () => {
  const times = player(300);
  expect(times.waiting(1_000)).toBe(false);
  expect(times.waiting(5_000)).toBe(true);
});

test('waits of another cause keep a player', () => {
  const times = player(200);
  for (let at = 0; at < 60_000; at += 1_000) expect(times.waiting(at)).toBe(false);
});

test('waits long after one another keep a player', () => {
  const times = player(300);
  expect(times.waiting(1_000)).toBe(false);
  expect(times.waiting(30_000)).toBe(false);
});

test('the first parts tell nothing', () => {
  const times = player(2_000, 15);
  times.waiting(1_000);
  expect(times.waiting(2_000)).toBe(false);
  times.arrived(300, 250);
  expect(times.waiting(3_000)).toBe(true);
});

test('a network that gets faster is soon believed', () => {
  const times = player(500);
  for (let i = 0; i < 40; i++) times.arrived(50, 250);
  times.waiting(1_000);
  expect(times.waiting(2_000)).toBe(false);
});

test('parts without a length do not count', () => {
  const times = player(100);
  times.arrived(100, 0);
  times.waiting(1_000);
  expect(times.waiting(2_000)).toBe(false);
});
