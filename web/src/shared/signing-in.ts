import { anyOf, timeout } from './abort';

/** Longest wait for an answer, and for its body, in milliseconds. */
export const TIMEOUT = 5_000;

/** Longest wait for the answer to a question without credentials, in milliseconds. */
export const LOOK = 2_000;

/** Whether the server has let this page in: the browser has what the server wants, if it wants anything. */
let admitted = false;
/** Whether the user has closed the browser's dialog. It would come again with each request. */
let declined = false;

/**
 * Fetches, as `fetch` does, and gives up after `TIMEOUT` and `LOOK`. If the server wants a password, the browser shows
 * a dialog for it, and the request stays open while the user types. To give up would close the dialog. So the page asks
 * without credentials, again and again, and waits as long as the server answers that it wants some. Once the user has
 * closed the dialog, no request opens it again before the page is loaded anew.
 */
export async function fetchSignedIn(
  url: string,
  headers: Record<string, string>,
  signal?: AbortSignal,
): Promise<Response> {
  const late = new AbortController();
  const giveUp = () => late.abort(new DOMException('The time is over.', 'TimeoutError'));
  const options = { cache: 'no-store', headers } as const;
  let isOpen = true;
  const limit = async () => {
    do await new Promise((resolve) => setTimeout(resolve, TIMEOUT));
    while (isOpen && !declined && (await wantsPassword(url, options)));
    if (isOpen) giveUp();
  };
  void limit();
  try {
    const response = await fetch(url, {
      ...options,
      signal: signal ? anyOf(signal, late.signal) : late.signal,
      credentials: declined ? 'omit' : 'same-origin',
    });
    if (response.status === 401) declined = true;
    if (response.ok) [admitted, declined] = [true, false];
    setTimeout(giveUp, TIMEOUT);
    return response;
  } finally {
    isOpen = false;
  }
}

/** The credentials of a request that must open no dialog: those that the browser has, or none. */
export function quietly(): RequestCredentials {
  return admitted ? 'same-origin' : 'omit';
}

async function wantsPassword(url: string, options: RequestInit): Promise<boolean> {
  const own = { ...options, method: 'HEAD', credentials: 'omit', signal: timeout(LOOK) } as const;
  const answer = await fetch(url, own).catch(() => null);
  return answer?.status === 401;
}
