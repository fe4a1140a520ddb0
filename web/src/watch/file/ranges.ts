import { httpFailure } from '../engines/engine';
import { FileFailure } from './failure';

/** The unit in which a file is fetched and kept, in bytes. */
export const BLOCK = 256 * 1024;
/** Longest request: 1 MiB. A longer one would keep a viewer who jumps waiting for bytes of no more use. */
const LONGEST = 4;
/** Blocks kept for what is asked for next: 2 MiB, whatever the length of the file. */
const KEPT = 8;
/** Waits before a request is made again, in milliseconds. */
const RETRY_AFTER = [500, 1_000, 2_000];
/** A connection that brings nothing for so long has died, in milliseconds. */
const SILENCE = 15_000;

/** A run of bytes of the file. */
export interface Piece {
  offset: number;
  size: number;
}

type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/**
 * A file on an HTTP server, read by range requests one after the other, so that they share a connection.
 * Requests cover whole blocks; what touches each other is fetched together. All answers are of one version
 * of the file: if it is replaced meanwhile, reading fails.
 */
export class Ranges {
  /** Length of the file in bytes, known from the first answer on. */
  size: number | null = null;
  private validator: string | null = null;
  /** By block number, the least recently used first. */
  private readonly blocks = new Map<number, Uint8Array>();

  constructor(
    private readonly url: string,
    private readonly request: Fetch = (url, init) => fetch(url, init),
    private readonly retryAfter: readonly number[] = RETRY_AFTER,
  ) {}

  /** The bytes from `offset` on, at most `size`: fewer only at the end of the file. */
  async read(offset: number, size: number, signal: AbortSignal): Promise<Uint8Array> {
    if (this.size === null) await this.block(Math.floor(offset / BLOCK), 1, signal);
    const there = Math.max(0, Math.min(size, (this.size ?? 0) - offset));
    return this.gather([{ offset, size: there }], signal);
  }

  /** The bytes of all pieces, joined in the order given. Fetched in the order of the file. */
  async gather(pieces: readonly Piece[], signal: AbortSignal): Promise<Uint8Array> {
    const parts: { block: number; from: number; to: number; at: number }[] = [];
    let length = 0;
    for (const { offset, size } of pieces) {
      for (let from = offset; from < offset + size; ) {
        const block = Math.floor(from / BLOCK);
        const to = Math.min(offset + size, (block + 1) * BLOCK);
        parts.push({ block, from: from - block * BLOCK, to: to - block * BLOCK, at: length });
        length += to - from;
        from = to;
      }
    }
    parts.sort((a, b) => a.block - b.block);
    const joined = new Uint8Array(length);
    for (const [i, { block, from, to, at }] of parts.entries()) {
      const bytes = this.kept(block) ?? (await this.block(block, runFrom(parts, i), signal));
      if (bytes.length < to) throw cutOff();
      joined.set(bytes.subarray(from, to), at);
    }
    return joined;
  }

  private kept(block: number): Uint8Array | undefined {
    const bytes = this.blocks.get(block);
    if (bytes) {
      this.blocks.delete(block);
      this.blocks.set(block, bytes);
    }
    return bytes;
  }

  /** Fetches `block` and those after it, `count` in all if none of them is here already. Returns the first. */
  private async block(block: number, count: number, signal: AbortSignal): Promise<Uint8Array> {
    const start = block * BLOCK;
    if (this.size !== null && start >= this.size) throw cutOff();
    let blocks = 1;
    while (blocks < Math.min(count, LONGEST) && !this.blocks.has(block + blocks)) blocks += 1;
    const bytes = await this.fetch(start, start + blocks * BLOCK, signal);
    for (let i = 0; i * BLOCK < bytes.length; i++) {
      this.blocks.set(block + i, bytes.slice(i * BLOCK, (i + 1) * BLOCK));
    }
    for (const oldest of this.blocks.keys()) {
      if (this.blocks.size <= KEPT) break;
      this.blocks.delete(oldest);
    }
    return bytes.subarray(0, BLOCK);
  }

  /** The bytes from `start` up to `end`, fewer at the end of the file. Tries again when the network fails. */
  private async fetch(start: number, end: number, signal: AbortSignal): Promise<Uint8Array> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.fetchOnce(start, end, signal);
      } catch (error) {
        signal.throwIfAborted();
        const wait = this.retryAfter[attempt];
        const hopeless = error instanceof FileFailure && !error.passing;
        if (hopeless) throw error;
        if (wait === undefined) {
          if (error instanceof FileFailure) throw error;
          const failure = new FileFailure('network', httpFailure('The file', undefined), String(error));
          failure.passing = true;
          throw failure;
        }
        await delay(wait, signal);
      }
    }
  }

  private async fetchOnce(start: number, end: number, signal: AbortSignal): Promise<Uint8Array> {
    const watch = new AbortController();
    let timer = setTimeout(() => watch.abort(new Error('the connection fell silent')), SILENCE);
    try {
      const response = await this.request(this.url, {
        headers: {
          range: `bytes=${start}-${end - 1}`,
          ...(this.validator === null ? {} : { 'if-range': this.validator }),
        },
        // The ranges are kept here as far as they are of use; the browser's cache would hold them a second time.
        cache: 'no-store',
        signal: AbortSignal.any([signal, watch.signal]),
      });
      const total = this.judge(response, start);
      const bytes = new Uint8Array(Math.min(end, total) - start);
      let filled = 0;
      const reader = response.body?.getReader();
      for (;;) {
        const chunk = await reader?.read();
        if (!chunk || chunk.done) break;
        clearTimeout(timer);
        timer = setTimeout(() => watch.abort(new Error('the connection fell silent')), SILENCE);
        if (filled + chunk.value.length > bytes.length)
          throw new FileFailure('media', 'The server sent more than was asked for.', '');
        bytes.set(chunk.value, filled);
        filled += chunk.value.length;
      }
      if (filled < bytes.length) throw new Error(`the answer ended after ${filled} of ${bytes.length} bytes`);
      return bytes;
    } finally {
      clearTimeout(timer);
      // Ends the transfer of an answer that was not read to its end; after one that was it does nothing.
      watch.abort();
    }
  }

  /** Whether an answer is the range asked for, of the file asked before; its length if so. */
  private judge(response: Response, start: number): number {
    const { status } = response;
    if (status === 200) {
      throw this.size === null
        ? new FileFailure(
            'network',
            'The server does not send parts of files (range requests).',
            'status 200',
          )
        : new FileFailure(
            'network',
            'The file was replaced on the server while it was playing.',
            'status 200',
          );
    }
    if (status === 416 && start === 0) {
      throw new FileFailure('media', 'The file is empty.', 'status 416');
    }
    if (status !== 206) {
      const failure = new FileFailure('network', httpFailure('The file', status), `status ${status}`);
      failure.passing = status >= 500;
      throw failure;
    }
    const [, from, total] =
      /^bytes (\d+)-\d+\/(\d+)$/.exec(response.headers.get('content-range') ?? '') ?? [];
    if (Number(from) !== start || total === undefined) {
      throw new FileFailure(
        'network',
        'The server sent another part of the file than was asked for.',
        response.headers.get('content-range') ?? 'no Content-Range',
      );
    }
    const size = Number(total);
    if (this.size !== null && this.size !== size) {
      throw new FileFailure('network', 'The file was replaced on the server while it was playing.', '');
    }
    this.size = size;
    const etag = response.headers.get('etag');
    // A weak validator may not be used for ranges (RFC 9110, 13.1.5).
    if (etag !== null && !etag.startsWith('W/')) this.validator = etag;
    return size;
  }
}

/** How many blocks in a row are wanted from part `i` on. */
function runFrom(parts: readonly { block: number }[], i: number): number {
  const first = parts[i]?.block ?? 0;
  let last = first;
  for (let next = i + 1; next < parts.length; next++) {
    const block = parts[next]?.block ?? first;
    if (block > last + 1 || block - first >= LONGEST) break;
    last = block;
  }
  return last - first + 1;
}

function cutOff(): FileFailure {
  return new FileFailure('media', 'The file is cut off: its index names bytes beyond its end.', '');
}

function delay(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', aborted);
      resolve();
    }, milliseconds);
    signal.addEventListener('abort', aborted, { once: true });
  });
}
