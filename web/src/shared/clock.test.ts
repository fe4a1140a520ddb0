import { describe, expect, it } from 'vitest';
import { ServerClock } from './clock';

describe('ServerClock', () => {
  it('is the clock here until the server was asked', () => {
    expect(new ServerClock().at(1_000)).toBe(1_000);
  });

  it('takes the server to have answered midway', () => {
    const clock = new ServerClock();
    clock.add({ asked: 1_000, answered: 1_100, server: 5_050 });
    expect(clock.at(2_000)).toBe(6_000);
    expect(clock.uncertainty).toBe(50);
  });

  it('believes the shortest round trip', () => {
    const clock = new ServerClock();
    clock.add({ asked: 0, answered: 10, server: 105 });
    clock.add({ asked: 100, answered: 400, server: 9_999 });
    expect(clock.at(0)).toBe(100);
  });

  it('hears a longer one after a while, since clocks drift', () => {
    const clock = new ServerClock();
    clock.add({ asked: 0, answered: 10, server: 105 });
    clock.age();
    clock.add({ asked: 100, answered: 120, server: 310 });
    expect(clock.at(0)).toBe(200);
  });

  it('ignores nonsense', () => {
    const clock = new ServerClock();
    clock.add({ asked: 0, answered: 10, server: Number.NaN });
    clock.add({ asked: 10, answered: 0, server: 500 });
    expect(clock.at(7)).toBe(7);
  });
});
