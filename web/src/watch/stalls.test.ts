import { describe, expect, it } from 'vitest';
import { StallMeter } from './stalls';

function begun(): StallMeter {
  const meter = new StallMeter();
  meter.firstFrame();
  return meter;
}

describe('StallMeter', () => {
  it('does not count the wait for the first frame', () => {
    const meter = new StallMeter();
    meter.waiting(0, false);
    meter.moving(900);
    expect(meter.count()).toBe(0);
    expect(meter.seconds(1_000)).toBe(0);
  });

  it('measures a stall from the wait to the motion', () => {
    const meter = begun();
    meter.waiting(1_000, false);
    meter.moving(1_420);
    expect(meter.count()).toBe(1);
    expect(meter.seconds(9_000)).toBeCloseTo(0.42);
    expect(meter.list(9_000)).toEqual([{ at: 1_000, seconds: 0.42 }]);
  });

  it('counts a stall while it lasts, growing', () => {
    const meter = begun();
    meter.waiting(1_000, false);
    expect(meter.stalled()).toBe(true);
    expect(meter.count()).toBe(1);
    expect(meter.seconds(1_500)).toBeCloseTo(0.5);
    expect(meter.seconds(3_000)).toBeCloseTo(2);
    expect(meter.list(3_000)).toEqual([{ at: 1_000, seconds: 2 }]);
  });

  it('takes several waits without motion between them as one stall', () => {
    const meter = begun();
    meter.waiting(1_000, false);
    meter.waiting(1_300, false);
    meter.moving(2_000);
    expect(meter.count()).toBe(1);
    expect(meter.seconds(2_000)).toBeCloseTo(1);
  });

  it('adds stalls up', () => {
    const meter = begun();
    meter.waiting(1_000, false);
    meter.moving(1_250);
    meter.waiting(5_000, false);
    meter.moving(5_500);
    expect(meter.count()).toBe(2);
    expect(meter.seconds(6_000)).toBeCloseTo(0.75);
  });

  it('does not count the wait after a jump', () => {
    const meter = begun();
    meter.waiting(1_000, true);
    meter.moving(1_700);
    expect(meter.count()).toBe(0);
  });

  it('counts on when hls.js jumps over a gap within a stall', () => {
    const meter = begun();
    meter.waiting(1_000, false);
    meter.waiting(1_200, true);
    meter.moving(1_300);
    expect(meter.seconds(2_000)).toBeCloseTo(0.3);
  });

  it('ends a stall where the viewer pauses', () => {
    const meter = begun();
    meter.waiting(1_000, false);
    meter.interrupted(1_400);
    meter.moving(60_000);
    expect(meter.count()).toBe(1);
    expect(meter.seconds(60_000)).toBeCloseTo(0.4);
  });

  it('keeps what was counted over a change of delivery, and counts anew only after its first frame', () => {
    const meter = begun();
    meter.waiting(1_000, false);
    meter.restart(1_500);
    meter.waiting(1_600, false);
    meter.moving(2_500);
    expect(meter.count()).toBe(1);
    meter.firstFrame();
    meter.waiting(3_000, false);
    meter.moving(3_100);
    expect(meter.count()).toBe(2);
    expect(meter.seconds(4_000)).toBeCloseTo(0.6);
  });

  it('lists a hundred stalls and counts the rest', () => {
    const meter = begun();
    for (let i = 0; i < 150; i++) {
      meter.waiting(i * 1_000, false);
      meter.moving(i * 1_000 + 100);
    }
    expect(meter.count()).toBe(150);
    expect(meter.seconds(1e6)).toBeCloseTo(15);
    expect(meter.list(1e6)).toHaveLength(100);
  });
});
