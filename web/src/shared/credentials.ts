/** What a page's address has to let its viewer in. */
export interface Credentials {
  /** As the address has them, `?key=KEY`, or empty. For requests that cannot have headers. */
  query: string;
  /** The `Authorization` header of all other requests: what a playlist names does not inherit its query. */
  headers: Record<string, string>;
  /** Why no header can carry them, as a sentence. */
  flaw?: string;
}

export const NO_CREDENTIALS: Credentials = { query: '', headers: {} };

/** Names in queries, as the server knows them. */
const NAMES = ['user', 'password', 'pass', 'key', 'token', 'jwt'];

const COLON =
  'The user name has a colon. Basic authentication cannot carry it (RFC 7617), so only Push can use it here.';

/** Reads the credentials in the query of a page's address. The first of a name counts, as for the server. */
export function credentialsOf(search: string): Credentials {
  const pairs = search.replace(/^\?/, '').split('&');
  const given = pairs.filter((pair) => NAMES.includes(pair.split('=', 1)[0] ?? ''));
  const value = (...names: string[]) => {
    const pair = given.find((one) => names.includes(one.split('=', 1)[0] ?? '')) ?? '';
    return decoded(pair.slice(pair.indexOf('=') + 1 || pair.length));
  };
  const query = given.length > 0 ? `?${given.join('&')}` : '';
  const user = value('user');
  const authorization = authorize(value('token', 'jwt'), user, value('password', 'pass'), value('key'));
  if (authorization !== null) return { query, headers: { authorization } };
  return user.includes(':') ? { query, headers: {}, flaw: COLON } : { query, headers: {} };
}

function authorize(token: string, user: string, password: string, key: string): string | null {
  // A token with other characters is never valid, and no header could carry it.
  if (/^[\x21-\x7e]+$/.test(token)) return `Bearer ${token}`;
  // The server takes a password without a user as a key.
  const secret = password || key;
  if (user === '' && secret === '') return null;
  // The server would take what follows the colon for the password, and count a guess.
  if (user.includes(':')) return null;
  return `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${secret}`)))}`;
}

/** Decodes as the server does: a plus is no space. */
function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return '';
  }
}
