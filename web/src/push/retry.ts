/** The first wait, and the longest, in milliseconds. */
const FIRST = 250;
const LONGEST = 8_000;

/**
 * How long to wait before connecting for the `attempt`th time (0 is the first) after a connection was lost,
 * in milliseconds. Twice as long each time, and by chance up to half less: of many viewers that a restarted
 * server lost at once, not all come back at once.
 */
export function retryDelay(attempt: number, chance = Math.random()): number {
  const full = Math.min(LONGEST, FIRST * 2 ** Math.min(attempt, 10));
  return full * (1 - chance / 2);
}

/** Bytes that a WebSocket message of a server has in front of its payload (RFC 6455 5.2). */
export function framing(payload: number): number {
  if (payload < 126) return 2;
  return payload < 65_536 ? 4 : 10;
}
