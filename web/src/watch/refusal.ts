import { NO_CREDENTIALS } from '../shared/credentials';

/** Longest reason that is shown, in characters. */
const LONGEST = 300;
const TIMEOUT = 5_000;

/**
 * Gets the server's reason for refusing an address: the first line of its answer. Null if it gives
 * none.
 */
export async function reasonOf(
  url: string,
  { headers } = NO_CREDENTIALS,
  request: typeof fetch = fetch,
): Promise<string | null> {
  try {
    const response = await request(url, { headers, signal: AbortSignal.timeout(TIMEOUT), cache: 'no-store' });
    const told = response.headers.get('content-type')?.startsWith('text/plain') ?? false;
    if (response.ok || !told) {
      await response.body?.cancel();
      return null;
    }
    const line = (await response.text()).split('\n', 1)[0]?.trim() ?? '';
    return line === '' ? null : line.slice(0, LONGEST);
  } catch {
    // The failure is shown without a reason.
    return null;
  }
}
