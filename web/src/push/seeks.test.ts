import { describe, expect, it } from 'vitest';
import { type Position, Seeks } from './seeks';

describe('Seeks', () => {
  it('tells of one at once', () => {
    const seeks = new Seeks();
    expect([seeks.position, seeks.isAhead, seeks.due(0)]).toEqual([null, false, null]);
    seeks.want(7);
    expect([seeks.position, seeks.isAhead, seeks.due(0)]).toEqual([7, true, 0]);
    expect(seeks.tell(0)).toBe(7);
    expect([seeks.isAhead, seeks.due(10)]).toEqual([true, null]);
    expect(seeks.answered()).toBe(true);
    expect([seeks.position, seeks.isAhead]).toEqual([7, false]);
    seeks.arrived();
    expect([seeks.position, seeks.isAhead, seeks.due(20)]).toEqual([null, false, null]);
  });

  it('tells of the newest of many, one after the other and not too often', () => {
    const seeks = new Seeks();
    const told: (Position | null)[] = [];
    // A slider is dragged for almost five seconds, and the server answers within 3 ms.
    for (let now = 0; now < 4_900; now += 16) {
      seeks.want(now / 10);
      if (seeks.due(now) !== 0) continue;
      told.push(seeks.tell(now));
      expect(seeks.answered()).toBe(true);
      seeks.arrived();
    }
    expect(told.length).toBeGreaterThan(20);
    expect(told.length).toBeLessThanOrEqual(25);
    const left = seeks.due(4_900);
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(200);
    expect(seeks.tell(4_900 + (left ?? 0))).toBe(489.6);
  });

  it('waits for the answer before it tells of another', () => {
    const seeks = new Seeks();
    seeks.want(1);
    seeks.tell(0);
    seeks.want(2);
    seeks.want(3);
    expect(seeks.due(1_000)).toBeNull();
    expect(seeks.answered()).toBe(false);
    expect(seeks.isAhead).toBe(true);
    expect(seeks.due(1_000)).toBe(0);
    expect(seeks.tell(1_000)).toBe(3);
    expect(seeks.answered()).toBe(true);
  });

  it('begins a connection with what is wanted, and tells of what is wanted meanwhile', () => {
    const seeks = new Seeks();
    expect(seeks.connect()).toBeNull();
    seeks.want(4);
    expect(seeks.connect()).toBe(4);
    expect([seeks.isAhead, seeks.due(0)]).toEqual([false, null]);
    seeks.want('live');
    expect([seeks.isAhead, seeks.due(0)]).toEqual([true, 0]);
    seeks.tell(0);
    // The missing answer is lost with the connection.
    expect(seeks.connect()).toBe('live');
    expect(seeks.answered()).toBe(false);
  });
});
