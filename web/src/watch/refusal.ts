import { timeout } from '../shared/abort';
import { type Credentials, NO_CREDENTIALS } from '../shared/credentials';
import type { Failure } from './condition';

/** Longest reason that is shown, in characters. */
const LONGEST = 300;
const TIMEOUT = 5_000;
/** How often a server that does not answer in time is asked. */
const TRIES = 2;

/**
 * Gets the server's reason for refusing an address: the first line of its answer. Null if it gives
 * none. A server that does not answer in time is asked once more.
 */
export async function reasonOf(
  url: string,
  credentials = NO_CREDENTIALS,
  request: typeof fetch = fetch,
  tries = TRIES,
): Promise<string | null> {
  try {
    const { headers } = credentials;
    const response = await request(url, { headers, signal: timeout(TIMEOUT), cache: 'no-store' });
    const told = response.headers.get('content-type')?.startsWith('text/plain') ?? false;
    if (response.ok || !told) {
      await response.body?.cancel();
      return null;
    }
    const line = (await response.text()).split('\n', 1)[0]?.trim() ?? '';
    return line === '' ? null : line.slice(0, LONGEST);
  } catch (error) {
    const isLate = error instanceof DOMException && error.name === 'TimeoutError';
    if (isLate && tries > 1) return reasonOf(url, credentials, request, tries - 1);
    // The failure is shown without a reason.
    return null;
  }
}

/** The failure, with the server's reason if it gives one, and with what is wrong with the credentials. */
export async function withReason(
  failure: Failure,
  credentials: Credentials,
  request: typeof fetch = fetch,
): Promise<Failure> {
  if (failure.refusedBy === undefined) return failure;
  const reason = await reasonOf(failure.refusedBy, credentials, request);
  const detail = reason === null ? failure.detail : `The server says: ${reason}`;
  // An address with the credentials in its query needs no header.
  const flaw = failure.refusedBy.endsWith(credentials.query) ? undefined : credentials.flaw;
  return { ...failure, detail: flaw ? `${flaw} ${detail}` : detail };
}
