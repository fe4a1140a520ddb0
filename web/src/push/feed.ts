import { readChunk, readHeader, type Track } from './boxes';
import { type Hello, parseEvent } from './events';
import { framing, retryDelay } from './retry';
import { type Place, Seeks } from './seeks';
import { Store } from './store';

/** What is asked of the server. */
export interface Wish {
  /** Address of the push endpoint, `ws:` or `wss:`. */
  url: string;
  /** Where to begin. */
  from: Place | 'start';
  rendition: string | null;
  max: number | null;
  /** How long a lost server is looked for, in seconds. */
  patience: number;
}

/** What the player wants of its feed. */
export type Order =
  | { do: 'open'; wish: Wish }
  | { do: 'at'; time: number }
  | { do: 'seek'; to: Place }
  | { do: 'rendition'; name: string | null }
  | { do: 'max'; bitrate: number | null }
  | { do: 'pause'; paused: boolean }
  | { do: 'close' };

/** What came over the wire. */
export interface Traffic {
  messages: number;
  /** Bytes of binary messages: headers and chunks. */
  media: number;
  /** All other bytes: heads of frames, and text. */
  overhead: number;
}

/** What the feed has to say. */
export type Report =
  | { is: 'source'; source: unknown }
  | { is: 'hello'; hello: Hello }
  | { is: 'rendition'; name: string; mime: string }
  /** `first` into an empty buffer, after so many seeks. `epoch` is when time 0 was captured, milliseconds since 1970. */
  | {
      is: 'media';
      traffic: Traffic;
      mime: string;
      first: boolean;
      seeks: number;
      chunk: number;
      epoch: number | null;
    }
  | { is: 'lost'; attempt: number; delay: number; reason: string }
  | { is: 'broken'; reason: string }
  | { is: 'failed'; code: string; reason: string };

/** A live stream joins at its newest keyframe: what begins so much further back is another stream, in seconds. */
const ANOTHER_STREAM = 15;
/** So many chunks show how long they are; what would be longer than this is a hole, in seconds. */
const CHUNKS = 10;
const LONGEST = 1;
/** How long the server may take to do as it was told, in milliseconds. */
const OBEDIENCE = 5_000;
/** A connection that lasts so long is a good one, in milliseconds. */
const PROVEN_AFTER = 5_000;
/** How long it may take to say why it refuses. */
const EXPLANATION = 4_000;
/** Seconds later than any stream: there the server goes on at the newest keyframe. */
const LATEST = 1e9;

/**
 * The connection and the buffer: what the server pushes goes into one SourceBuffer. Works in a worker as well as in
 * the page, and knows nothing of the picture but what it is told of its place.
 */
export class Feed {
  private readonly store: Store;
  private wish: Wish | null = null;
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private attempt = 0;
  /** When the last connection was asked for, whether it came about, and since when there is none. Milliseconds. */
  private connectedAt = 0;
  private connected = false;
  private lostSince: number | null = null;
  private hello: Hello | null = null;
  private rendition: string | null = null;
  private tracks = new Map<number, Track>();
  private header: Uint8Array<ArrayBuffer> = new Uint8Array();
  /** Decode time of the newest chunk of each track, in its units: what was sent before is not taken again. */
  private newest = new Map<number, number>();
  /** How long the last chunks of the picture lasted, in seconds. */
  private chunks: number[] = [];
  /** When time 0 was captured, in milliseconds since 1970. */
  private epoch: number | null = null;
  private readonly seeks = new Seeks();
  /** How many there were. */
  private sought = 0;
  /** The next chunk is the first of a connection, or behind a jump. */
  private fresh = true;
  private over = false;
  private refused: string | null = null;
  private readonly traffic: Traffic = { messages: 0, media: 0, overhead: 0 };

  constructor(private readonly report: (report: Report, transfer?: Transferable[]) => void) {
    this.store = new Store({
      opened: (source, transfer) => report({ is: 'source', source }, transfer),
      added: (first) => {
        report({
          is: 'media',
          traffic: { ...this.traffic },
          mime: this.store.mime,
          // What was sought meanwhile comes into an empty buffer again.
          first: first && this.seeks.place === null,
          seeks: this.sought,
          chunk: Math.max(0, ...this.chunks),
          epoch: this.epoch,
        });
      },
      broken: (reason) => report({ is: 'broken', reason }),
    });
  }

  obey(order: Order): void {
    switch (order.do) {
      case 'open':
        this.wish = { ...order.wish };
        this.connect();
        break;
      case 'at':
        this.store.at(order.time);
        break;
      case 'seek':
        this.seek(order.to);
        break;
      case 'rendition':
        if (this.wish) this.wish.rendition = order.name;
        this.say({ rendition: order.name });
        break;
      case 'max':
        if (this.wish) this.wish.max = order.bitrate;
        this.say({ max: order.bitrate });
        break;
      case 'pause':
        this.say({ pause: order.paused });
        break;
      case 'close':
        this.wish = null;
        this.disconnect();
        this.store.close();
    }
  }

  private get recorded(): boolean {
    return (this.hello?.duration ?? null) !== null;
  }

  private connect(): void {
    const { wish } = this;
    if (!wish) return;
    this.disconnect();
    const sought = this.seeks.connect();
    if (sought !== null) {
      wish.from = sought;
      this.empty();
    }
    const url = new URL(wish.url);
    if (wish.from !== 'live') url.searchParams.set('from', String(wish.from));
    if (wish.rendition !== null) url.searchParams.set('rendition', wish.rendition);
    if (wish.max !== null) url.searchParams.set('max', String(wish.max));
    const socket = new WebSocket(url, 'headwater.v1');
    socket.binaryType = 'arraybuffer';
    this.socket = socket;
    this.connectedAt = performance.now();
    this.connected = false;
    this.fresh = true;
    this.refused = null;
    const mine = (does: (event: never) => void) => (event: unknown) => {
      if (this.socket === socket) does(event as never);
    };
    socket.onmessage = mine(({ data }: MessageEvent<string | ArrayBuffer>) => this.receive(data));
    socket.onclose = mine(({ code, reason }: CloseEvent) => {
      this.socket = null;
      clearTimeout(this.timer);
      if (code === 1000) {
        if (this.over) return;
        // It was at its end before it heard of a seek.
        if (this.recorded && this.seeks.isAhead) {
          this.connect();
          return;
        }
      }
      void this.lost(url, this.refused ?? (reason || `closed with code ${code}`));
    });
  }

  private disconnect(): void {
    clearTimeout(this.timer);
    const { socket } = this;
    this.socket = null;
    socket?.close();
  }

  /** The connection is gone, or never was: tries again, unless the server refuses for good. */
  private async lost(url: URL, reason: string): Promise<void> {
    const { wish } = this;
    this.lostSince ??= performance.now();
    const refusal = this.connected ? null : await refusalOf(url);
    // Something else was ordered while the server was asked.
    if (!wish || wish !== this.wish || this.socket) return;
    const why = refusal?.reason ?? reason;
    const final = refusal?.final && (this.hello === null || refusal.status !== 404);
    if (final || performance.now() - this.lostSince > wish.patience * 1000) {
      const code = refusal?.status === 404 ? 'not-found' : refusal ? 'refused' : 'network';
      this.report({ is: 'failed', code, reason: why });
      return;
    }
    const delay = retryDelay(this.attempt++);
    this.report({ is: 'lost', attempt: this.attempt, delay, reason: why });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      // A file goes on where what is buffered ends, a broadcast at its newest keyframe, unless something was sought.
      if (this.recorded) wish.from = this.store.end() ?? wish.from;
      else if (this.hello) wish.from = 'live';
      this.connect();
    }, delay);
  }

  private say(command: Record<string, unknown>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(command));
  }

  private seek(to: Place): void {
    this.over = false;
    this.sought += 1;
    this.seeks.want(to);
    if (to !== 'live') this.store.at(to);
    if (this.socket) this.tellSeek();
    // One that was lost is tried again soon, and begins there.
    else if (this.lostSince === null) this.connect();
  }

  /** Tells the server where to go on, when it may be told and if it has to be. */
  private tellSeek(): void {
    const due = this.seeks.due(performance.now());
    if (due === null || !this.connected || this.socket?.readyState !== WebSocket.OPEN) return;
    clearTimeout(this.timer);
    if (due > 0) {
      this.timer = setTimeout(() => this.tellSeek(), due);
      return;
    }
    const to = this.seeks.tell(performance.now());
    this.say({ seek: to === 'live' ? LATEST : to });
    this.timer = setTimeout(() => this.connect(), OBEDIENCE);
  }

  /** What comes now does not continue what is buffered. */
  private empty(): void {
    this.newest.clear();
    this.store.empty();
  }

  private receive(data: string | ArrayBuffer): void {
    const { traffic } = this;
    const size = typeof data === 'string' ? new TextEncoder().encode(data).length : data.byteLength;
    traffic.messages += 1;
    traffic.overhead += framing(size);
    if (typeof data === 'string') {
      traffic.overhead += size;
      this.told(data);
      return;
    }
    traffic.media += size;
    // A server that accepts and closes at once is no server found again.
    if (performance.now() - this.connectedAt > PROVEN_AFTER) this.attempt = 0;
    try {
      this.take(new Uint8Array(data));
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.report({ is: 'broken', reason: `the server sent no MP4: ${error.message}` });
    }
  }

  private told(text: string): void {
    const said = parseEvent(text);
    switch (said?.event) {
      case 'hello':
        this.hello = said;
        this.rendition = said.rendition;
        this.connected = true;
        this.lostSince = null;
        this.over = false;
        this.store.duration(said.duration);
        this.report({ is: 'hello', hello: said });
        this.tellSeek();
        break;
      case 'rendition':
        this.rendition = said.rendition;
        break;
      case 'discontinuity':
        if (said.reason !== 'seek') break;
        if (this.seeks.answered()) {
          clearTimeout(this.timer);
          this.fresh = true;
          this.empty();
        } else {
          this.tellSeek();
        }
        break;
      case 'end':
        // The end of what was left by a seek.
        if (this.recorded && this.seeks.isAhead) break;
        this.over = true;
        this.store.finish();
        break;
      case 'error':
        this.refused = said.message;
    }
  }

  /** A header or a chunk. */
  private take(bytes: Uint8Array<ArrayBuffer>): void {
    const tracks = readHeader(bytes);
    if (tracks) {
      // The same again, after a connection was lost: the browser would wait for keyframes.
      if (!same(bytes, this.header) || this.store.isEmpty) this.begin(bytes, tracks);
      return;
    }
    if (this.seeks.isAhead) return;
    const chunk = readChunk(bytes);
    const track = this.tracks.get(chunk.track);
    if (!track) return;
    const seconds = chunk.time / track.timescale;
    if (this.fresh) {
      this.fresh = false;
      this.seeks.arrived();
      const end = this.store.end();
      if (end !== null && seconds < end - ANOTHER_STREAM && !this.recorded) this.restart();
    }
    if (chunk.captured) {
      this.epoch = chunk.captured.at - (chunk.captured.time / track.timescale) * 1000;
    }
    const before = this.newest.get(chunk.track);
    if (before !== undefined && chunk.time <= before) return;
    this.newest.set(chunk.track, chunk.time);
    const leads = track.picture || this.tracks.size === 1;
    if (leads && before !== undefined) {
      const lasted = Math.min(LONGEST, (chunk.time - before) / track.timescale);
      this.chunks = [...this.chunks.slice(1 - CHUNKS), lasted];
    }
    this.store.add(bytes, seconds, chunk.independent && leads);
  }

  private begin(header: Uint8Array<ArrayBuffer>, tracks: Track[]): void {
    const codecs = tracks.map(({ codec }) => codec).join(', ');
    const mime = `${tracks.some(({ picture }) => picture) ? 'video' : 'audio'}/mp4; codecs="${codecs}"`;
    this.header = header;
    this.tracks = new Map(tracks.map((track) => [track.id, track]));
    // A track that is left and come back to has a hole.
    for (const id of this.newest.keys()) if (!this.tracks.has(id)) this.newest.delete(id);
    if (!this.store.decodes(mime)) {
      this.tracks.clear();
      this.avoid(mime);
      return;
    }
    if (this.rendition !== null) this.report({ is: 'rendition', name: this.rendition, mime });
    this.store.begin(header, mime);
  }

  /** The server was started anew, and counts from the beginning. */
  private restart(): void {
    this.epoch = null;
    this.empty();
    this.store.begin(this.header, this.store.mime);
  }

  /**
   * The browser does not decode the present rendition: asks for the best that it does, until the page takes that
   * back. The server would choose the same again.
   */
  private avoid(mime: string): void {
    const { hello } = this;
    const sound = hello?.audio ? `, ${hello.audio}` : '';
    const other = hello?.renditions.find(
      ({ name, codecs }) =>
        name !== this.rendition && this.store.decodes(`video/mp4; codecs="${codecs}${sound}"`),
    );
    if (other) this.obey({ do: 'rendition', name: other.name });
    else {
      this.disconnect();
      this.report({ is: 'failed', code: 'codec', reason: `this browser does not decode ${mime}` });
    }
  }
}

interface Refusal {
  status: number;
  reason: string;
  /** It will not be otherwise later. */
  final: boolean;
}

/** Why the server refuses a WebSocket, which browsers do not tell: the same address is asked for as a page. */
async function refusalOf(url: URL): Promise<Refusal | null> {
  try {
    const page = new URL(url);
    page.protocol = url.protocol === 'wss:' ? 'https:' : 'http:';
    const { status, body } = await fetch(page, {
      cache: 'no-store',
      signal: AbortSignal.timeout(EXPLANATION),
    });
    await body?.cancel();
    // That a WebSocket is wanted here means that the server would have one.
    if (status === 426 || status < 400) return null;
    return { status, reason: `the server answers ${status}`, final: status < 500 && status !== 429 };
  } catch {
    return null;
  }
}

function same(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, i) => byte === other[i]);
}
