import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Beacon, beaconUrl, type Told, written } from './beacon';

const told: Told = {
  buffer: 1.2345,
  bitrate: 900_400,
  throughput: 25e6,
  stalls: 0,
  startup: 0.7,
  state: 'p',
};

describe('what a player tells', () => {
  it('is written as CMCD', () => {
    expect(written(told, 'sf=h,st=ll,sid="x"', 0)).toBe(
      'bl=1235,br=900,msd=700,mtp=25000,sf=h,st=ll,sid="x",sta=p,v=2',
    );
  });

  it('leaves out what is not known', () => {
    const little: Told = { buffer: Number.NaN, bitrate: null, stalls: 3, startup: null, state: 'r' };
    expect(written(little, 'sf=o', 3)).toBe('sf=o,sta=r,v=2');
    expect(written(little, 'sf=o', 2)).toBe('bs,sf=o,sta=r,v=2');
  });
});

describe('a beacon', () => {
  const sent: string[] = [];
  const data = () => sent.map((url) => new URL(url).searchParams.get('CMCD') ?? '');
  const page = new EventTarget();

  beforeEach(() => {
    sent.length = 0;
    vi.useFakeTimers();
    vi.stubGlobal('navigator', { sendBeacon: (url: string) => sent.push(url) });
    vi.stubGlobal('addEventListener', page.addEventListener.bind(page));
    vi.stubGlobal('removeEventListener', page.removeEventListener.bind(page));
    vi.stubGlobal('document', { baseURI: 'https://a.example/watch/live/x?via=push' });
  });

  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  it('goes to a neighbour of what is played, with its credentials', () => {
    expect(beaconUrl('/s/abc/live/x/push')).toBe('https://a.example/s/abc/live/x/cmcd');
    expect(beaconUrl('wss://b.example/vod/a%20b.mp4/push?token=1')).toBe(
      'https://b.example/vod/a%20b.mp4/cmcd?token=1',
    );
  });

  it('is sent at the begin, every ten seconds and at the end, of one session', () => {
    let stalls = 0;
    const beacon = new Beacon('https://b.example/live/x/cmcd?token=1', 'sf=d', () => ({ ...told, stalls }));
    vi.advanceTimersByTime(9_999);
    expect(sent).toHaveLength(1);
    stalls = 1;
    vi.advanceTimersByTime(20_001);
    expect(sent).toHaveLength(4);
    page.dispatchEvent(new Event('pagehide'));
    beacon.end();
    vi.advanceTimersByTime(60_000);
    page.dispatchEvent(new Event('pagehide'));
    expect(sent).toHaveLength(6);
    expect(new Set(data().map((text) => /sid="([0-9-]+)"/.exec(text)?.[1])).size).toBe(1);
    expect(data().map((text) => text.includes('bs'))).toEqual([false, true, false, false, false, false]);
    expect(data().map((text) => /sta=(.)/.exec(text)?.[1])).toEqual(['p', 'p', 'p', 'p', 'q', 'q']);
    expect(new URL(sent[0] ?? '').searchParams.get('token')).toBe('1');
  });
});
