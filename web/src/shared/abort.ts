/**
 * Signals that abort requests. Browsers have had `AbortSignal.any` since 2024 (Safari 17.4, Firefox 124) and
 * `AbortSignal.timeout` since 2022. The pages must also play in older browsers.
 */

/** A signal that is aborted as soon as one of these signals is, for the same reason. */
export function anyOf(...signals: AbortSignal[]): AbortSignal {
  const either = new AbortController();
  for (const signal of signals) {
    const follow = () => either.abort(signal.reason);
    if (signal.aborted) follow();
    // A signal that lives long must not keep the listeners of requests that are over.
    else signal.addEventListener('abort', follow, { signal: either.signal });
  }
  return either.signal;
}

/** A signal that is aborted after so many milliseconds, by a `TimeoutError`. */
export function timeout(milliseconds: number): AbortSignal {
  if ('timeout' in AbortSignal) return AbortSignal.timeout(milliseconds);
  const late = new AbortController();
  setTimeout(() => late.abort(new DOMException('The time is over.', 'TimeoutError')), milliseconds);
  return late.signal;
}
