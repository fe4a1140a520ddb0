import { describe, expect, it } from 'vitest';
import { type Look, Standstill } from './standstill';

const STANDS: Look = {
  time: 18,
  wanted: true,
  seeking: false,
  bufferedTo: 18.005,
  nextFrom: null,
  listedTo: 18.8,
};
/** Audio begins later than the position at which to start. */
const BEFORE_SOUND: Look = {
  time: 1.49,
  wanted: false,
  seeking: true,
  bufferedTo: 1.49,
  nextFrom: 1.953,
  listedTo: 3,
};

/** Looks every 50 ms from `from` to `to`. Returns when the playhead was moved, and to where. */
function look(standstill: Standstill, from: number, to: number, at: Look): [number, number][] {
  const put: [number, number][] = [];
  for (let now = from; now <= to; now += 50) {
    const time = standstill.look(now, at);
    if (time !== null) put.push([now, time]);
  }
  return put;
}

describe('Standstill', () => {
  it('puts the picture behind what is buffered within half a second', () => {
    const [first] = look(new Standstill(), 0, 500, STANDS);
    expect(first?.[0]).toBeLessThan(400);
    expect(first?.[1]).toBeGreaterThan(18.0073);
    expect(first?.[1]).toBeLessThan(18.1);
  });

  it('does so again where it was of no use, but not all the time', () => {
    const put = look(new Standstill(), 0, 3_000, STANDS);
    expect(put.length).toBe(3);
  });

  it('leaves alone a picture that moves, or is not meant to', () => {
    const standstill = new Standstill();
    for (let now = 0; now < 3_000; now += 50) {
      expect(standstill.look(now, { ...STANDS, time: 18 + now / 1000, listedTo: 99 })).toBeNull();
    }
    expect(look(standstill, 3_000, 6_000, { ...STANDS, wanted: false })).toEqual([]);
    // The time counts from when the playhead should move again.
    expect(look(standstill, 6_000, 6_200, STANDS)).toEqual([]);
  });

  it('waits where there is nothing newer', () => {
    expect(look(new Standstill(), 0, 5_000, { ...STANDS, listedTo: 18.01 })).toEqual([]);
  });

  it('has all media once it stands where each track ends', () => {
    const [standstill, end] = [new Standstill(), { ...STANDS, listedTo: 18.01 }];
    const tracks = (video: number) => [
      { bufferedTo: video, listedTo: 18.3 },
      { bufferedTo: 18.005, listedTo: 18.01 },
    ];
    look(standstill, 0, 200, end);
    expect(standstill.hasAll(200, end, tracks(18.29))).toBe(false);
    look(standstill, 250, 500, end);
    expect(standstill.hasAll(500, end, tracks(18.29))).toBe(true);
    expect(standstill.hasAll(500, end, tracks(18.1))).toBe(false);
    expect(standstill.hasAll(500, { ...end, time: 18.003 }, tracks(18.29))).toBe(false);
    expect(standstill.hasAll(500, { ...end, wanted: false }, tracks(18.29))).toBe(false);
  });

  it('waits for what has been asked for, but not for ever', () => {
    const standstill = new Standstill();
    standstill.asks('audio', 0, 18.1);
    const put = look(standstill, 0, 3_000, STANDS);
    expect(put[0]?.[0]).toBe(1_500);
    standstill.asks('audio', 3_000, 18.1);
    standstill.answered('audio');
    expect(look(standstill, 3_050, 4_000, STANDS).length).toBe(1);
  });

  it('goes to where media begin if there are none at the picture', () => {
    const [first] = look(new Standstill(), 0, 500, BEFORE_SOUND);
    expect(first?.[0]).toBeLessThan(400);
    expect(first?.[1]).toBeGreaterThan(1.953);
    expect(first?.[1]).toBeLessThan(2.05);
  });

  it('waits for media on their way that may fill the hole, and for no others', () => {
    const standstill = new Standstill();
    standstill.asks('audio', 0, 2.3);
    expect(look(standstill, 0, 500, BEFORE_SOUND).length).toBe(1);
    const back = new Standstill();
    back.asks('main', 0, 1.2);
    expect(look(back, 0, 1_000, BEFORE_SOUND)).toEqual([]);
    back.answered('main');
    expect(look(back, 1_050, 1_100, BEFORE_SOUND).length).toBe(1);
  });

  it('leaves a seek alone that has nothing to go to', () => {
    expect(look(new Standstill(), 0, 5_000, { ...BEFORE_SOUND, nextFrom: null })).toEqual([]);
  });

  it('has a request repeated that is not answered, each time later until one is', () => {
    const standstill = new Standstill();
    standstill.asks('main', 0, 18.1);
    const lost: number[] = [];
    const pushed: number[] = [];
    for (let now = 0; now < 12_000; now += 50) {
      // hls.js ends a lost request, and asks again.
      for (const track of standstill.lost(now)) {
        lost.push(now);
        standstill.answered(track);
        standstill.asks(track, now, 18.1);
      }
      if (standstill.look(now, STANDS) !== null) pushed.push(now);
      if (now === 8_000) {
        standstill.arrived('main');
        standstill.asks('main', now, 18.3);
      }
    }
    expect(lost).toEqual([1_500, 4_500, 9_500]);
    // The playhead is moved only when the repeated request is as old.
    expect(pushed[0]).toBe(3_000);
  });

  it('has no request repeated while the picture moves', () => {
    const standstill = new Standstill();
    standstill.asks('main', 0, 18.1);
    for (let now = 0; now < 5_000; now += 50) {
      expect(standstill.lost(now)).toEqual([]);
      standstill.look(now, { ...STANDS, time: 18 + now / 1000 });
    }
  });
});
