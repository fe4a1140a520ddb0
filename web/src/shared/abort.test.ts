import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { anyOf, timeout } from './abort';
import { ask } from './api';

describe('in a browser without AbortSignal.any and AbortSignal.timeout', () => {
  const { any, timeout: usual } = AbortSignal;

  beforeEach(() => {
    vi.useFakeTimers();
    Reflect.deleteProperty(AbortSignal, 'any');
    Reflect.deleteProperty(AbortSignal, 'timeout');
  });

  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
    Object.assign(AbortSignal, { any, timeout: usual });
  });

  it('aborts with the first of several signals, for its reason', () => {
    const [one, other] = [new AbortController(), new AbortController()];
    const either = anyOf(one.signal, other.signal);
    expect(either.aborted).toBe(false);
    other.abort('gone');
    one.abort('late');
    expect(either.reason).toBe('gone');
    expect(anyOf(new AbortController().signal, one.signal).reason).toBe('late');
  });

  it('aborts after a time', () => {
    const signal = timeout(5_000);
    vi.advanceTimersByTime(4_999);
    expect(signal.aborted).toBe(false);
    vi.advanceTimersByTime(1);
    expect(signal.reason).toMatchObject({ name: 'TimeoutError' });
  });

  it('asks the API, and gives up after 7 s or with the caller', async () => {
    const silent = (_url: string, { signal }: RequestInit) =>
      new Promise((_answered, failed) => signal?.addEventListener('abort', () => failed(signal.reason)));
    vi.stubGlobal('fetch', async () => new Response('{"node":"a"}'));
    expect(await ask('/x', new AbortController().signal)).toEqual({ node: 'a' });
    vi.stubGlobal('fetch', silent);
    const late = expect(ask('/x', new AbortController().signal)).rejects.toMatchObject({
      name: 'TimeoutError',
    });
    await vi.advanceTimersByTimeAsync(7_000);
    await late;
    const left = new AbortController();
    const ended = expect(ask('/x', left.signal)).rejects.toBe('left');
    left.abort('left');
    await ended;
  });
});
