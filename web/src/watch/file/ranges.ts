import { anyOf } from '../../shared/abort';
import type { Credentials } from '../../shared/credentials';
import { httpFailure } from '../engines/engine';
import { FileFailure } from './failure';

/** Unit in which a file is fetched and kept, in bytes. */
export const BLOCK = 256 * 1024;
/**
 * Longest request in blocks: 1 MiB. With longer requests, a viewer who jumps would wait for useless
 * bytes.
 */
const LONGEST = 4;
/** Number of blocks kept for later reads: 2 MiB, whatever the size of the file. */
const KEPT = 8;
/** Waits before a request is repeated, in milliseconds. */
const RETRY_AFTER = [500, 1_000, 2_000];
/** A connection that brings no bytes for this time is dead, in milliseconds. */
const SILENCE = 15_000;

/** A range of bytes in the file. */
export interface Piece {
  offset: number;
  size: number;
}

type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/**
 * A file on an HTTP server, read by range requests, one after the other on one connection. Requests
 * cover whole blocks, and neighbouring blocks are fetched together. All answers must be of the same
 * version of the file. If the file is replaced meanwhile, reading fails.
 */
export class Ranges {
  /** Size of the file in bytes, known after the first answer. */
  size: number | null = null;
  private validator: string | null = null;
  /** By block number; the least recently used block comes first. */
  private readonly blocks = new Map<number, Uint8Array>();

  constructor(
    private readonly url: string,
    private readonly credentials: Credentials,
    private readonly request: Fetch = (url, init) => fetch(url, init),
    private readonly retryAfter: readonly number[] = RETRY_AFTER,
  ) {}

  /** Reads at most `size` bytes from `offset` on. Returns fewer only at the end of the file. */
  async read(offset: number, size: number, signal: AbortSignal): Promise<Uint8Array> {
    if (this.size === null) await this.block(Math.floor(offset / BLOCK), 1, signal);
    const there = Math.max(0, Math.min(size, (this.size ?? 0) - offset));
    return this.gather([{ offset, size: there }], signal);
  }

  /** Reads all pieces and joins them in the given order. They are fetched in file order. */
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

  /**
   * Fetches up to `count` blocks from `block` on, as far as they are missing. Returns the first.
   */
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

  /**
   * Fetches the bytes from `start` to `end` (exclusive), fewer at the end of the file. Tries again
   * when the network fails.
   */
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
          ...this.credentials.headers,
          range: `bytes=${start}-${end - 1}`,
          ...(this.validator === null ? {} : { 'if-range': this.validator }),
        },
        // The useful ranges are kept here. The browser's cache would store them a second time.
        cache: 'no-store',
        signal: anyOf(signal, watch.signal),
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
      // Ends the transfer of an answer that was not fully read. Otherwise it does nothing.
      watch.abort();
    }
  }

  /** Checks that an answer is the requested range of the same file. Returns the file's size. */
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
      failure.refused = status >= 400 && status < 500;
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
    // A weak validator must not be used for ranges (RFC 9110, 13.1.5).
    if (etag !== null && !etag.startsWith('W/')) this.validator = etag;
    return size;
  }
}

/** The number of consecutive blocks wanted from part `i` on. */
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
