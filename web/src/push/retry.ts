/** The first wait and the longest, in milliseconds. */
const FIRST = 250;
const LONGEST = 8_000;

/**
 * How long to wait before the attempt number `attempt` (from 0) after a connection was lost, in
 * milliseconds. The wait doubles each time. Chance makes it up to half shorter, so that the viewers
 * of a restarted server do not all come back at once.
 */
export function retryDelay(attempt: number, chance = Math.random()): number {
  const full = Math.min(LONGEST, FIRST * 2 ** attempt);
  return full * (1 - chance / 2);
}

/** Bytes before the payload in a server's WebSocket message (RFC 6455 5.2). */
export function framing(payload: number): number {
  if (payload < 126) return 2;
  return payload < 65_536 ? 4 : 10;
}
