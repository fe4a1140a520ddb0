import { readChunk, readHeader, type Track } from './boxes';
import { type Hello, parseEvent } from './events';
import { framing, retryDelay } from './retry';
import { type Position, Seeks } from './seeks';
import { Store } from './store';

/** What to ask of the server. */
export interface Wish {
  /** Address of the push endpoint, `ws:` or `wss:`. */
  url: string;
  /** Where to begin. */
  from: Position | 'start';
  rendition: string | null;
  max: number | null;
  /** How long to try to reach a lost server, in seconds. */
  patience: number;
}

/** What may change while media come. */
export type Wishes = Partial<Pick<Wish, 'rendition' | 'max'>>;

/** An order of the player to its feed. */
export type Order =
  | { do: 'open'; wish: Wish }
  | { do: 'at'; time: number }
  | { do: 'seek'; to: Position }
  | { do: 'want'; wishes: Wishes }
  | { do: 'pause'; paused: boolean }
  | { do: 'close' };

/** Bytes and messages received. */
export interface Traffic {
  messages: number;
  /** Bytes of binary messages: headers and chunks. */
  media: number;
  /** All other bytes: frame headers, and text. */
  overhead: number;
}

/** A report of the feed to its player. */
export type Report =
  | { is: 'source'; source: unknown }
  | { is: 'hello'; hello: Hello }
  | { is: 'rendition'; name: string; mime: string }
  /**
   * `first`: into an empty buffer. `seeks`: how many seeks came before. `epoch`: when time 0 was
   * captured, in milliseconds since 1970.
   */
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

/**
 * A viewer joins a live stream at its newest keyframe. A stream that begins this much earlier is
 * another one, in seconds.
 */
const ANOTHER_STREAM = 15;
/**
 * This many chunks show how long chunks are. A chunk longer than the second figure is a hole, in
 * seconds.
 */
const CHUNKS = 10;
const LONGEST = 1;
/** How long the server may take to carry out an order, in milliseconds. */
const OBEDIENCE = 5_000;
/** A connection that lasts this long is good, in milliseconds. */
const PROVEN_AFTER = 5_000;
/**
 * Nothing may come for twice the time between the server's signs of life, and for this much longer, in milliseconds. A
 * connection whose network has gone does not end by itself for minutes.
 */
const SILENCE = 5_000;
/** How long the server may take to explain a refusal, in milliseconds. */
const EXPLANATION = 4_000;
/** A time later than any stream, in seconds: there the server goes on at the newest keyframe. */
const LATEST = 1e9;

/**
 * The connection and the buffer: puts the media that the server pushes into one SourceBuffer. Works
 * in a worker and in the page. It knows nothing of the video but the position of the playhead.
 */
export class Feed {
  private readonly store: Store;
  private wish: Wish | null = null;
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private attempt = 0;
  /**
   * When the last connection was opened, whether that succeeded, and since when there is none.
   * Milliseconds.
   */
  private connectedAt = 0;
  private connected = false;
  private lostSince: number | null = null;
  private hello: Hello | null = null;
  private rendition: string | null = null;
  /** Wishes that the address of the present connection does not have. */
  private unsaid: Wishes | null = null;
  private tracks = new Map<number, Track>();
  private header: Uint8Array<ArrayBuffer> = new Uint8Array();
  /**
   * Decode time of each track's newest chunk, in its units. Earlier chunks are repeats and are
   * dropped.
   */
  private newest = new Map<number, number>();
  /** Durations of the last video chunks, in seconds. */
  private chunks: number[] = [];
  /** When time 0 was captured, in milliseconds since 1970. */
  private epoch: number | null = null;
  private readonly seeks = new Seeks();
  /** Number of seeks. */
  private sought = 0;
  /** Whether the next chunk is the first of a connection, or the first after a jump. */
  private fresh = true;
  private over = false;
  private refused: string | null = null;
  /** Seconds between the server's signs of life, as it told last. */
  private every = 9;
  private silent: ReturnType<typeof setTimeout> | undefined;
  private readonly traffic: Traffic = { messages: 0, media: 0, overhead: 0 };

  constructor(private readonly report: (report: Report, transfer?: Transferable[]) => void) {
    this.store = new Store({
      opened: (source, transfer) => report({ is: 'source', source }, transfer),
      added: (first) => {
        report({
          is: 'media',
          traffic: { ...this.traffic },
          mime: this.store.mime,
          // After a seek meanwhile, the new media also come into an empty buffer.
          first: first && this.seeks.position === null,
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
      case 'want':
        Object.assign(this.wish ?? {}, order.wishes);
        this.unsaid = { ...this.unsaid, ...order.wishes };
        this.say(order.wishes);
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
    return this.hello?.duration != null;
  }

  /** `gone`: the server had no such rendition or stream. It is told the rendition once it has the stream. */
  private connect(gone = false): void {
    const { wish } = this;
    if (!wish) return;
    this.disconnect();
    const sought = this.seeks.connect();
    if (sought !== null) {
      wish.from = sought;
      this.empty();
    }
    let { url } = wish;
    // URLSearchParams would write the query that there is in another way, and the server reads a plus as itself.
    const ask = (name: string, value: string | number) => {
      url += `${url.includes('?') ? '&' : '?'}${name}=${encodeURIComponent(value)}`;
    };
    ask('alive', 1);
    if (wish.from !== 'live') ask('from', wish.from);
    const { rendition, max } = wish;
    this.unsaid = gone ? { rendition } : null;
    if (rendition && !gone) ask('rendition', rendition);
    if (max !== null) ask('max', max);
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
    socket.onmessage = mine(({ data }: MessageEvent<string | ArrayBuffer>) => {
      this.receive(data);
      this.listen();
    });
    socket.onclose = mine(({ code, reason }: CloseEvent) => {
      this.disconnect();
      if (this.over) return;
      // The server reached the end before it heard of a seek.
      if (code === 1000 && this.recorded && this.seeks.isAhead) this.connect();
      else void this.lost(socket.url, this.refused ?? (reason || `closed with code ${code}`));
    });
    this.listen();
  }

  private disconnect(): void {
    clearTimeout(this.timer);
    const { socket } = this;
    this.socket = null;
    socket?.close();
  }

  /** The connection is lost or was refused. Tries again, unless the refusal is final. */
  private async lost(url: string, reason: string): Promise<void> {
    const { wish } = this;
    this.lostSince ??= performance.now();
    const status = this.connected ? null : await refusalOf(url);
    // Another order came while the server was asked.
    if (!wish || wish !== this.wish || this.socket) return;
    if (status) reason = `the server answers ${status}`;
    // A stream that was there may come back, or the rendition has gone.
    const gone = status === 404 && this.hello !== null;
    const final = status && status < 500 && status !== 429 && !gone;
    if (final || performance.now() > this.lostSince + wish.patience * 1000) {
      const code = status === 404 ? 'not-found' : status ? 'refused' : 'network';
      this.report({ is: 'failed', code, reason });
      return;
    }
    const delay = retryDelay(this.attempt++);
    this.report({ is: 'lost', attempt: this.attempt, delay, reason });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.resume(gone), delay);
  }

  /**
   * Connects again. A file goes on where the buffer ends, and a broadcast at its newest keyframe, unless there was a
   * seek.
   */
  private resume(gone = false): void {
    const { wish } = this;
    if (wish && this.recorded) wish.from = this.store.end() ?? wish.from;
    else if (wish && this.hello) wish.from = 'live';
    this.connect(gone);
  }

  private say(command: Record<string, unknown>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(command));
  }

  private seek(to: Position): void {
    this.over = false;
    this.sought += 1;
    this.seeks.want(to);
    if (to !== 'live') this.store.at(to);
    if (this.socket) this.tellSeek();
    // After a loss the next attempt comes soon, and begins at the new position.
    else if (this.lostSince === null) this.connect();
  }

  /** Tells the server of a seek, if there is one to tell and it is time. */
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

  /** Empties the buffer: the next media do not continue it. */
  private empty(): void {
    this.newest.clear();
    this.store.empty();
  }

  /** Leaves the connection if nothing comes for too long from now on. */
  private listen(): void {
    clearTimeout(this.silent);
    const leave = () => this.socket?.onclose?.({ reason: 'the server is silent' } as CloseEvent);
    // A segment of a file may take long, and browsers show a message when it is whole. The answer to a new
    // connection is short.
    if (!this.recorded || !this.connected) this.silent = setTimeout(leave, 2_000 * this.every + SILENCE);
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
    // A server that accepts a connection and closes it at once is not back.
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
        if (this.unsaid) this.say(this.unsaid);
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
      case 'alive':
        this.every = said.every;
        break;
      case 'end':
        // This is the end of the media from before a seek.
        if (this.recorded && this.seeks.isAhead) break;
        this.over = true;
        this.store.finish();
        break;
      case 'error':
        this.refused = said.message;
    }
  }

  /** Takes a header or a chunk. */
  private take(bytes: Uint8Array<ArrayBuffer>): void {
    const tracks = readHeader(bytes);
    if (tracks) {
      // The same header comes again after a reconnection. Appending it would make the browser wait
      // for keyframes.
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
    const leads = track.video || this.tracks.size === 1;
    if (leads && before !== undefined) {
      const lasted = Math.min(LONGEST, (chunk.time - before) / track.timescale);
      this.chunks = [...this.chunks.slice(1 - CHUNKS), lasted];
    }
    this.store.add(bytes, seconds, chunk.independent && leads);
  }

  private begin(header: Uint8Array<ArrayBuffer>, tracks: Track[]): void {
    const codecs = tracks.map(({ codec }) => codec).join(', ');
    const mime = `${tracks.some(({ video }) => video) ? 'video' : 'audio'}/mp4; codecs="${codecs}"`;
    this.header = header;
    this.tracks = new Map(tracks.map((track) => [track.id, track]));
    // A track that is left and used again later has a hole.
    for (const id of this.newest.keys()) if (!this.tracks.has(id)) this.newest.delete(id);
    if (!this.store.decodes(mime)) {
      this.tracks.clear();
      this.avoid(mime);
      return;
    }
    if (this.rendition !== null) this.report({ is: 'rendition', name: this.rendition, mime });
    this.store.begin(header, mime);
  }

  /** The server was restarted and counts time from the beginning. */
  private restart(): void {
    this.epoch = null;
    this.empty();
    this.store.begin(this.header, this.store.mime);
  }

  /**
   * The browser does not decode the present rendition. Asks for the best one that it does decode,
   * and not for the server's choice, which would be the same again. The page can take this back.
   */
  private avoid(mime: string): void {
    const { hello } = this;
    const audio = hello?.audio ? `, ${hello.audio}` : '';
    const other = hello?.renditions.find(
      ({ name, codecs }) =>
        name !== this.rendition && this.store.decodes(`video/mp4; codecs="${codecs}${audio}"`),
    );
    if (other) {
      this.obey({ do: 'want', wishes: { rendition: other.name } });
      // The server would go on behind what cannot be decoded. Nothing of a file is left out.
      if (this.recorded) this.resume();
    } else {
      this.disconnect();
      this.report({ is: 'failed', code: 'codec', reason: `this browser does not decode ${mime}` });
    }
  }
}

/**
 * The status with which the server refuses a WebSocket; null if it does not. Browsers do not tell, so this requests
 * the same address by HTTP.
 */
async function refusalOf(url: string): Promise<number | null> {
  try {
    const { status, body } = await fetch(url.replace(/^ws/, 'http'), {
      cache: 'no-store',
      // Safari before 16 does not have it. The request then lasts as long as the browser lets it.
      signal: AbortSignal.timeout?.(EXPLANATION),
    });
    await body?.cancel();
    // With 426, the server only asks for a WebSocket, so it would accept one.
    return status === 426 || status < 400 ? null : status;
  } catch {
    return null;
  }
}

function same(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, i) => byte === other[i]);
}
