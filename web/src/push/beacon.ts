/** The figures that a player reports of itself. */
export interface Told {
  /** Seconds of media ahead of the playhead. */
  buffer: number;
  /** Bit/s of what is played. */
  bitrate: number | null;
  /** Bit/s of the network, as the player measured it. */
  throughput?: number | null;
  /** How often playback ran out of media so far. */
  stalls: number;
  /** Seconds from the wish to play to the first frame, once there was one. */
  startup: number | null;
  /** As CMCD names it: it starts, plays, is paused, stalls (*rebuffers*) or has ended. */
  state: 's' | 'p' | 'a' | 'r' | 'e';
}

/** Milliseconds between beacons. The server counts a viewer for three times as long. */
const EVERY = 10_000;

/** A key and its value, if it is known. */
const pair = (key: string, value: number | null | undefined): string[] =>
  value == null || !(value >= 0) ? [] : [`${key}=${Math.round(value)}`];

/** What is told, as CMCD writes it (CTA-5004-A, event mode). Stalls before `stalls` were told. */
export function written(told: Told, fixed: string, stalls: number, state: string = told.state): string {
  return [
    ...pair('bl', told.buffer * 1000),
    ...pair('br', told.bitrate && told.bitrate / 1000),
    ...(told.stalls > stalls ? ['bs'] : []),
    ...pair('msd', told.startup && told.startup * 1000),
    ...pair('mtp', told.throughput && told.throughput / 1000),
    fixed,
    `sta=${state}`,
    'v=2',
  ].join();
}

/**
 * The address to which the player of `url` tells of itself: `cmcd` in place of the last part of its
 * path.
 */
export function beaconUrl(url: string | URL): string {
  const address = new URL(url, document.baseURI);
  address.protocol = address.protocol.replace('ws', 'http');
  address.pathname = address.pathname.replace(/[^/]*$/, 'cmcd');
  return address.href;
}

/**
 * Tells the server how a viewer is (docs/cmcd.md), so that it counts those, too, whose media come
 * from a cache: when playback begins, every ten seconds, and when it ends.
 */
export class Beacon {
  /** Of random numbers: randomUUID is not there for pages without TLS. */
  private readonly session = crypto.getRandomValues(new Uint32Array(4)).join('-');
  private readonly timer = setInterval(() => this.tell(), EVERY);
  private stalls = 0;

  /** `how` is the stream's format and kind: `sf=h,st=ll`. */
  constructor(
    private readonly url: string,
    private readonly how: string,
    private readonly look: () => Told,
  ) {
    addEventListener('pagehide', this.leave);
    this.tell();
  }

  /** Tells of the present moment. */
  tell(state?: string): void {
    const told = this.look();
    const data = written(told, `${this.how},sid="${this.session}"`, this.stalls, state);
    this.stalls = told.stalls;
    const { url } = this;
    navigator.sendBeacon?.(`${url}${url.includes('?') ? '&' : '?'}CMCD=${encodeURIComponent(data)}`);
  }

  /** Tells that the viewer has left. */
  end(): void {
    clearInterval(this.timer);
    removeEventListener('pagehide', this.leave);
    this.leave();
  }

  /** A page that comes back goes on to tell. */
  private readonly leave = (): void => this.tell('q');
}
