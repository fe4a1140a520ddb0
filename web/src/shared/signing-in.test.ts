import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LOOK, TIMEOUT } from './signing-in';

/** Requests that are not answered yet, in their order. */
let open: { init: RequestInit; answer: (status: number) => void }[];
/** As a page that was just loaded. */
let fetchSignedIn: typeof import('./signing-in').fetchSignedIn;
const { timeout } = AbortSignal;

beforeEach(async () => {
  vi.useFakeTimers();
  // The clock of this test does not move that of the browser's own signals.
  Reflect.deleteProperty(AbortSignal, 'timeout');
  open = [];
  vi.stubGlobal('fetch', (_: string, init: RequestInit) => {
    return new Promise((resolve, reject) => {
      init.signal?.addEventListener('abort', () => reject(init.signal?.reason));
      open.push({ init, answer: (status) => resolve(new Response(null, { status })) });
    });
  });
  vi.resetModules();
  ({ fetchSignedIn } = await import('./signing-in'));
});

afterEach(() => {
  vi.useRealTimers();
  Object.assign(AbortSignal, { timeout });
  vi.unstubAllGlobals();
});

/** Begins a request, and returns what becomes of it: a status, or the name of an error. */
function begin(): { outcome: number | string | null } {
  const request: { outcome: number | string | null } = { outcome: null };
  fetchSignedIn('/api', {}).then(
    ({ status }) => {
      request.outcome = status;
    },
    (error: Error) => {
      request.outcome = error.name;
    },
  );
  return request;
}

describe('fetchSignedIn', () => {
  it('gives up on a server that does not answer', async () => {
    const request = begin();
    await vi.advanceTimersByTimeAsync(TIMEOUT + LOOK - 1);
    expect(open.map(({ init }) => init.credentials)).toEqual(['same-origin', 'omit']);
    expect(request.outcome).toBeNull();
    await vi.advanceTimersByTimeAsync(1);
    expect(request.outcome).toBe('TimeoutError');
  });

  it('waits while the server wants a password, and no longer', async () => {
    const request = begin();
    for (let probe = 1; probe <= 20; probe += 1) {
      await vi.advanceTimersByTimeAsync(TIMEOUT);
      expect(open).toHaveLength(1 + probe);
      open[probe]?.answer(401);
    }
    await vi.advanceTimersByTimeAsync(0);
    expect(request.outcome).toBeNull();
    open[0]?.answer(200);
    await vi.advanceTimersByTimeAsync(0);
    expect(request.outcome).toBe(200);
    expect(open[0]?.init.signal?.aborted).toBe(false);
    // Later, a server may begin to want a password, or may stop to answer.
    const next = begin();
    await vi.advanceTimersByTimeAsync(TIMEOUT);
    open.at(-1)?.answer(401);
    await vi.advanceTimersByTimeAsync(TIMEOUT);
    expect(next.outcome).toBeNull();
    open.at(-1)?.answer(503);
    await vi.advanceTimersByTimeAsync(0);
    expect(next.outcome).toBe('TimeoutError');
  });

  it('bounds the time for the body', async () => {
    const request = begin();
    await vi.advanceTimersByTimeAsync(TIMEOUT - 1);
    open[0]?.answer(200);
    await vi.advanceTimersByTimeAsync(TIMEOUT - 1);
    expect(request.outcome).toBe(200);
    expect(open[0]?.init.signal?.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(open[0]?.init.signal?.aborted).toBe(true);
  });

  it('opens no dialog again that the user has closed', async () => {
    const request = begin();
    open[0]?.answer(401);
    await vi.advanceTimersByTimeAsync(0);
    expect(request.outcome).toBe(401);
    begin();
    expect(open[1]?.init.credentials).toBe('omit');
    // Another request with a dialog of its own was let in.
    open[1]?.answer(200);
    await vi.advanceTimersByTimeAsync(0);
    begin();
    expect(open[2]?.init.credentials).toBe('same-origin');
  });
});
