import { timeout } from './abort';

/**
 * One request to the server's clock: when it was sent and answered here, and the server's time.
 * Milliseconds.
 */
export interface ClockSample {
  asked: number;
  answered: number;
  server: number;
}

/**
 * An estimate of the server's clock. It uses the answer with the shortest round trip, because half
 * the round trip bounds the error. It assumes that the server read its clock midway.
 */
export class ServerClock {
  private offset = 0;
  private roundTrip = Number.POSITIVE_INFINITY;

  /** Half the round trip of the sample in use, in milliseconds; infinite before the first one. */
  get uncertainty(): number {
    return this.roundTrip / 2;
  }

  add(sample: ClockSample): void {
    const roundTrip = sample.answered - sample.asked;
    if (roundTrip < 0 || !Number.isFinite(sample.server) || roundTrip > this.roundTrip) return;
    this.roundTrip = roundTrip;
    this.offset = sample.server - (sample.asked + sample.answered) / 2;
  }

  /** Forgets how good the last sample was, so that a new one can replace it: clocks drift. */
  age(): void {
    this.roundTrip = Number.POSITIVE_INFINITY;
  }

  /** Milliseconds since 1970 on the server, at `now` milliseconds since 1970 here. */
  at(now: number): number {
    return now + this.offset;
  }
}

/**
 * Asks the server for its time `count` times, one after the other. A failure leaves the clock
 * unchanged.
 */
export async function askTime(clock: ServerClock, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    try {
      const asked = Date.now();
      const response = await fetch('/api/v1/time', { cache: 'no-store', signal: timeout(5_000) });
      // The answer counts from the arrival of its head: reading the body may wait for the event
      // loop.
      const answered = Date.now();
      if (!response.ok) return;
      clock.add({ asked, answered, server: Date.parse((await response.text()).trim()) });
    } catch {
      return;
    }
  }
}
