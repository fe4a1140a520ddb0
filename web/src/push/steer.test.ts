import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Order } from './feed';
import { Pace } from './pace';
import { Steer, type VideoElement } from './steer';

/** A video element that does nothing by itself. */
class Screen implements VideoElement {
  currentTime = 0;
  playbackRate = 1;
  paused = false;
  seeking = false;
  ended = false;
  ranges: [number, number][] = [];

  get buffered(): TimeRanges {
    const { ranges } = this;
    const side = (index: 0 | 1) => (i: number) => ranges[i]?.[index] ?? Number.NaN;
    return { length: ranges.length, start: side(0), end: side(1) };
  }
}

const CHUNK = 0.2;
/** A reserve of 0.1 s, and one chunk. */
const BEHIND = 0.3;

let video: Screen;
let orders: Order[];
let steer: Steer;

function begin(from: 'live' | 'start' | number = 'live', recorded = false): void {
  video = new Screen();
  orders = [];
  steer = new Steer(video, new Pace(0.1, 2), from, (order) => orders.push(order));
  steer.opened(recorded);
}

/** Puts media from `start` to `end` into an empty buffer, after `seeks` seeks. */
function arrive(start: number, end: number, seeks = 0): void {
  video.ranges = [[start, end]];
  steer.arrived(true, seeks, CHUNK);
}

/** Moves the video as a viewer does: by the element's own controls, or by `currentTime`. */
function goTo(time: number): void {
  video.currentTime = time;
  steer.sought();
}

function pass(seconds: number): void {
  vi.advanceTimersByTime(seconds * 1000);
  steer.look();
}

/** The orders to the server. */
const told = () => orders.filter(({ do: what }) => what !== 'at');

beforeEach(() => vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => vi.useRealTimers());

describe('live', () => {
  beforeEach(() => {
    begin();
    arrive(100, 104);
  });

  it('begins and stays close to live', () => {
    expect(video.currentTime).toBeCloseTo(104 - BEHIND);
    steer.sought();
    expect([steer.following, told()]).toEqual([true, []]);
  });

  it('is jumped to once after a slow start, and caught up with from then on', () => {
    steer.settled();
    /** Plays for a second while media arrive at the same pace. */
    const second = () => {
      for (let i = 0; i < 5; i++) {
        const end = (video.ranges.at(-1)?.[1] ?? 0) + CHUNK;
        video.ranges = [[100, end]];
        video.currentTime += CHUNK;
        vi.advanceTimersByTime(CHUNK * 1000);
        steer.arrived(false, 0, CHUNK);
      }
    };
    const behind = () => (video.ranges.at(-1)?.[1] ?? 0) - video.currentTime;
    // It took 0.6 s until the video moved.
    video.seeking = true;
    video.ranges = [[100, 104.6]];
    steer.look();
    video.seeking = false;
    second();
    expect([steer.count.jumps, behind()]).toEqual([1, expect.closeTo(BEHIND)]);
    steer.settled();
    video.currentTime -= 0.6;
    for (let i = 0; i < 3; i++) second();
    expect([steer.count.jumps, video.playbackRate]).toEqual([1, 1.05]);
  });

  it('is left by a seek back to what is buffered', () => {
    steer.sought();
    steer.settled();
    goTo(101);
    pass(1);
    expect([steer.following, video.currentTime, told()]).toEqual([false, 101, []]);
    goTo(103.9);
    expect(steer.following).toBe(true);
  });

  it('asks for what is not buffered, and keeps to it', () => {
    steer.settled();
    goTo(90);
    expect([steer.following, told()]).toEqual([false, [{ do: 'seek', to: 90 }]]);
    // Media from before the seek do not count.
    steer.arrived(true, 0, CHUNK);
    expect(steer.placed).toBe(false);
    arrive(89, 95, 1);
    expect([steer.placed, video.currentTime]).toEqual([true, 90]);
  });

  it('goes back to live where a seek has just been asked for', () => {
    steer.settled();
    goTo(90);
    steer.goLive();
    expect(told().slice(1)).toEqual([{ do: 'seek', to: 'live' }]);
    arrive(89, 95, 1);
    expect(steer.placed).toBe(false);
    arrive(103, 105, 2);
    steer.sought();
    expect(steer.following).toBe(true);
    expect(video.currentTime).toBeCloseTo(105 - BEHIND);
  });

  it('goes to live where a seek has not been heard of', () => {
    steer.settled();
    video.currentTime = 90;
    steer.goLive();
    steer.sought();
    expect([steer.following, told()]).toEqual([true, []]);
    expect(video.currentTime).toBeCloseTo(104 - BEHIND);
  });

  it('is gone to again after a pause by the browser, and not after one by the viewer', () => {
    steer.settled();
    for (const [leaves, to] of [
      [false, 107 - BEHIND],
      [true, 107 - BEHIND],
    ] as const) {
      if (leaves) steer.leaveLive();
      video.paused = true;
      steer.paused();
      video.ranges = [[100, leaves ? 110 : 107]];
      pass(3);
      video.paused = false;
      steer.resume();
      steer.settled();
      expect([steer.following, video.currentTime]).toEqual([!leaves, expect.closeTo(to)]);
    }
    steer.goLive();
    expect([steer.following, video.currentTime]).toEqual([true, expect.closeTo(110 - BEHIND)]);
  });

  it('takes its position in a stream that begins anew', () => {
    steer.settled();
    arrive(0, 2);
    steer.sought();
    expect([steer.following, told()]).toEqual([true, []]);
    expect(video.currentTime).toBeCloseTo(2 - BEHIND);
  });

  it('has the server stop for one who never plays, and go on', () => {
    video.paused = true;
    pass(1);
    expect(told()).toEqual([]);
    pass(11);
    expect(told()).toEqual([{ do: 'pause', paused: true }]);
    video.paused = false;
    steer.resume();
    expect(told().slice(1)).toEqual([{ do: 'pause', paused: false }]);
  });

  it('shows one who has long paused where they seek', () => {
    steer.settled();
    video.paused = true;
    steer.paused();
    pass(11);
    goTo(90);
    expect(told()).toEqual([
      { do: 'pause', paused: true },
      { do: 'pause', paused: false },
      { do: 'seek', to: 90 },
    ]);
    arrive(89, 95, 1);
    pass(5);
    expect(told()).toHaveLength(3);
    pass(6);
    expect(told().at(-1)).toEqual({ do: 'pause', paused: true });
  });
});

describe('a file', () => {
  beforeEach(() => begin('live', true));

  it('is received a minute ahead, and elsewhere after a seek', () => {
    arrive(0, 40);
    expect(told()).toEqual([]);
    video.ranges = [[0, 61]];
    pass(0.1);
    expect(told()).toEqual([{ do: 'pause', paused: true }]);
    goTo(110);
    expect(told().slice(1)).toEqual([
      { do: 'pause', paused: false },
      { do: 'seek', to: 110 },
    ]);
    arrive(108, 114, 1);
    expect([steer.placed, video.currentTime]).toEqual([true, 110]);
  });

  it('begins where it was sought before there were media', () => {
    steer.seek(30);
    expect(told()).toEqual([{ do: 'seek', to: 30 }]);
    arrive(0, 10, 0);
    expect(steer.placed).toBe(false);
    arrive(28, 38, 1);
    expect(video.currentTime).toBe(30);
  });

  it('goes on where it was, from another source', () => {
    arrive(0, 40);
    video.currentTime = 12;
    expect(steer.restart()).toBe(12);
    expect(steer.placed).toBe(false);
    video.currentTime = 0;
    arrive(10, 20);
    expect(video.currentTime).toBe(12);
  });
});
