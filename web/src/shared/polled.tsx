import { useEffect, useState } from 'preact/hooks';

/** How often the server is asked, in milliseconds. */
const EVERY = 1_000;

/** What the server said last. */
export interface Reading<T> {
  /** Null before the first answer. */
  value: T | null;
  /** Why the last request failed. */
  trouble: string | null;
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
            <strong>The server cannot be reached.</strong> {trouble}{' '}
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

function sentence(error: unknown): string {
  if (error instanceof TypeError) return 'It does not answer.';
  if (error instanceof DOMException) return 'It did not answer in time.';
  return `It gave an answer that is not understood: ${error instanceof Error ? error.message : String(error)}.`;
}
