import { type Credentials, credentialsOf } from './credentials';

/** How a stream reaches the browser. */
export type Via = 'push' | 'llhls' | 'hls' | 'dash' | 'webrtc' | 'file';

/** The deliveries that this page plays, in the order in which it offers them. */
export const DELIVERIES: readonly { via: Via; label: string; hint: string; recordedHint?: string }[] = [
  { via: 'llhls', label: 'LL-HLS', hint: 'Low-latency HLS, about a second behind' },
  {
    via: 'hls',
    label: 'HLS',
    hint: 'HLS without low latency, several seconds behind, the calmest',
    recordedHint: 'Segments made on the fly, by hls.js',
  },
  {
    via: 'dash',
    label: 'DASH',
    hint: 'Low-latency DASH, a few seconds behind',
    recordedHint: 'Segments made on the fly, by dash.js',
  },
  {
    via: 'push',
    label: 'Push',
    hint: 'Over a WebSocket, as close to live as the stream’s chunks allow; the server chooses the rendition',
    recordedHint: 'Over a WebSocket; the server chooses the rendition',
  },
  {
    via: 'webrtc',
    label: 'WebRTC',
    hint: 'A fraction of a second behind, over UDP; H.264 only',
  },
  {
    via: 'file',
    label: 'File',
    hint: '',
    recordedHint: 'The file itself by range requests, cut up in this page',
  },
];

/** File names that end as MP4 names do. A folder of renditions has no such name. */
const MP4_NAME = /\.(mp4|m4v|m4a|mov|f4v|3gp|ismv|isma|cmfv|cmfa)$/i;

/**
 * The deliveries of a stream. A recording has no latency, so LL-HLS is left out for it. A single
 * file can also be played as it is.
 */
export function deliveriesOf(stream: string): typeof DELIVERIES {
  const recorded = isRecorded(stream);
  return DELIVERIES.filter(({ via }) => {
    if (via === 'llhls' || via === 'webrtc') return !recorded;
    if (via === 'file') return recorded && MP4_NAME.test(stream);
    return true;
  });
}

/** The delivery of a watch page whose address names none. */
function defaultVia(stream: string): Via {
  return isRecorded(stream) ? 'hls' : 'llhls';
}

/** What a watch page is to show. */
export interface WatchRequest {
  /** `live/NAME` or `vod/PATH`, decoded; null if the address names no valid stream. */
  stream: string | null;
  /** The delivery; null if the address names one that this page does not have. */
  via: Via | null;
  /** The value of `via` in the address, or the default. */
  askedVia: string;
  /** What stands before all addresses of the stream: `/s/TOKEN` if the page's own is signed, else nothing. */
  prefix: string;
  /** What the page's address has to let the viewer in. */
  credentials: Credentials;
}

const LIVE_SEGMENT = /^[A-Za-z0-9_-][A-Za-z0-9._-]*$/;
const LONGEST_NAME = 128;

/** Whether `stream` is a possible name at the origin: `live/NAME`, `live/a/b`, `vod/PATH`. */
export function isStream(stream: string): boolean {
  const [root, ...segments] = stream.split('/');
  if (segments.length === 0 || segments.some((segment) => segment === '')) return false;
  if (root === 'live') {
    return (
      segments.join('/').length <= LONGEST_NAME && segments.every((segment) => LIVE_SEGMENT.test(segment))
    );
  }
  // A file may have almost any name, but its path may not lead out of the root.
  return (
    root === 'vod' &&
    segments.every((segment) => segment !== '.' && segment !== '..' && !segment.includes('\0'))
  );
}

/** Whether the stream is a file and not a broadcast. */
export function isRecorded(stream: string): boolean {
  return stream.startsWith('vod/');
}

/** Reads the address of a watch page, `/watch/STREAM?via=…`. */
export function parseWatchUrl(url: URL): WatchRequest {
  const stream = streamOfPath(url.pathname);
  const usual = defaultVia(stream ?? '');
  const askedVia = url.searchParams.get('via') || usual;
  const known = DELIVERIES.find((delivery) => delivery.via === askedVia)?.via ?? null;
  // Delivery as a file is for recordings only, and WebRTC is for broadcasts.
  const impossible = isRecorded(stream ?? '') ? 'webrtc' : 'file';
  const possible = known === impossible ? null : known;
  const via = possible === 'llhls' ? usual : possible;
  return { stream, via, askedVia, prefix: prefixOf(url), credentials: credentialsOf(url.search) };
}

/** What stands before all addresses of a page: `/s/TOKEN` if its own is signed. */
export function prefixOf(page: URL): string {
  return /^\/s\/[^/]+(?=\/watch\/)/.exec(page.pathname)?.[0] ?? '';
}

function streamOfPath(path: string): string | null {
  const match = /^(?:\/s\/[^/]+)?\/watch\/(.+?)\/?$/.exec(path);
  if (!match?.[1]) return null;
  const segments: string[] = [];
  for (const segment of match[1].split('/')) {
    const decoded = decodeSegment(segment);
    // An encoded slash would change the path's meaning on the way to the origin, which also refuses
    // it.
    if (decoded === null || decoded.includes('/')) return null;
    segments.push(decoded);
  }
  const stream = segments.join('/');
  return isStream(stream) ? stream : null;
}

function decodeSegment(segment: string): string | null {
  try {
    return decodeURIComponent(segment);
  } catch {
    return null;
  }
}

/** The path of a stream as it is in a URL. */
export function pathOf(stream: string): string {
  return stream.split('/').map(encodeURIComponent).join('/');
}

/** Address of a stream's watch page, with the credentials in `query`. The default delivery is left out. */
export function watchUrl(stream: string, via: Via = defaultVia(stream), prefix = '', query = ''): string {
  const chosen = via === defaultVia(stream) ? '' : `?via=${via}`;
  return `${prefix}/watch/${pathOf(stream)}${chosen}${chosen === '' ? query : query.replace('?', '&')}`;
}

/**
 * Address from which a delivery starts: a playlist, a manifest, a WebSocket, or the file itself. Of the credentials,
 * only that of a WebSocket has the `query`; other requests have headers.
 */
export function sourceUrl(stream: string, via: Via, prefix = '', query = ''): string {
  const path = `${prefix}/${pathOf(stream)}`;
  if (via === 'file') return path;
  if (via === 'push') return `${path}/push${query}`;
  if (via === 'webrtc') return `${path}/whep`;
  return `${path}/${via === 'dash' ? 'manifest.mpd' : 'index.m3u8'}`;
}

/** Addresses of a stream for other players. `page` is the address of this page. */
export function playerUrls(stream: string, page: URL): { label: string; url: string }[] {
  const prefix = prefixOf(page);
  const path = `${prefix}/${pathOf(stream)}`;
  const { query } = credentialsOf(page.search);
  const push = { label: 'Push', url: `${page.origin.replace('http', 'ws')}${path}/push${query}` };
  // What a playlist names does not inherit its query.
  const urls =
    query === ''
      ? [
          { label: 'HLS', url: `${page.origin}${path}/index.m3u8` },
          { label: 'DASH', url: `${page.origin}${path}/manifest.mpd` },
        ]
      : [];
  // RTMP has no signed paths.
  const rtmp = prefix === '' ? [{ label: 'RTMP', url: `rtmp://${page.hostname}${path}${query}` }] : [];
  if (isRecorded(stream)) {
    const file = { label: 'MP4', url: `${page.origin}${path}${query}` };
    return MP4_NAME.test(stream) ? [...urls, push, file, ...rtmp] : [...urls, push];
  }
  return [
    ...urls,
    { label: 'MP4', url: `${page.origin}${path}/live.mp4${query}` },
    { label: 'FLV', url: `${page.origin}${path}/live.flv${query}` },
    push,
    ...rtmp,
  ];
}
