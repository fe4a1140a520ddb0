import { useEffect, useState } from 'preact/hooks';
import { Refused } from './api';

/** How often the server is asked, in milliseconds. */
const EVERY = 1_000;

/** Why a request failed: in a few words, and in a sentence. */
export interface Trouble {
  title: string;
  text: string;
}

/** What the server said last. */
export interface Reading<T> {
  /** Null before the first answer. */
  value: T | null;
  /** Why the last request failed. */
  trouble: Trouble | null;
  /** What changed, for screen readers. */
  news: string;
}

/**
 * Asks the server every second, or every so many milliseconds, while the page is visible. A failed request leaves the
 * last answer on the page. `changes` says in a sentence what differs between two answers, or null.
 */
export function usePolled<T>(
  ask: () => Promise<T>,
  changes: (before: T, after: T) => string | null = () => null,
  every = EVERY,
): Reading<T> {
  const [reading, setReading] = useState<Reading<T>>({ value: null, trouble: null, news: '' });
  useEffect(() => {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      const visible = document.visibilityState === 'visible';
      if (visible) {
        try {
          const value = await ask();
          setReading((before) => ({
            value,
            trouble: null,
            news: (before.value !== null && changes(before.value, value)) || before.news,
          }));
        } catch (error) {
          setReading((before) => ({ ...before, trouble: sentence(error) }));
        }
      }
      // A page that comes into sight again waits no longer than a second.
      if (!stopped) timer = setTimeout(read, visible ? every : EVERY);
    };
    void read();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, []);
  return reading;
}

/** Says why the last request failed, and, for screen readers only, what changed. */
export function Messages<T>({ value, trouble, news }: Reading<T>) {
  return (
    <>
      <div role="alert">
        {trouble && (
          <p class="trouble">
            <strong>{trouble.title}</strong> {trouble.text}{' '}
            {value !== null
              ? 'What is shown below is the last it said; trying again every second.'
              : 'Trying again every second.'}
          </p>
        )}
      </div>
      <p class="sr-only" role="status" aria-live="polite">
        {news}
      </p>
      {value === null && !trouble && <p>Asking the server…</p>}
    </>
  );
}

/** Why the server refuses, by status. */
const REFUSALS: Record<number, string> = {
  401: 'It asks for a user name and a password. Load the page again to give them.',
  403: 'The credentials or the address of this browser are not allowed to read this.',
  429: 'There were too many requests, or too many wrong credentials, from this address.',
  503: 'It cannot answer at the moment, or cannot check who asks.',
};

/** Says why a request failed. */
export function sentence(error: unknown): Trouble {
  if (error instanceof Refused) {
    const title = 'The server refuses this.';
    return { title, text: REFUSALS[error.status] ?? `It answers with the status ${error.status}.` };
  }
  const title = 'The server cannot be reached.';
  if (error instanceof TypeError) return { title, text: 'It does not answer.' };
  if (error instanceof DOMException) return { title, text: 'It did not answer in time.' };
  const why = error instanceof Error ? error.message : String(error);
  return { title: 'The server’s answer is not understood.', text: `It is no answer of this API: ${why}.` };
}
