import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Feed, type Report, type Wish } from './feed';

/** A connection whose server the test plays. */
class Socket {
  static readonly OPEN = 1;
  static all: Socket[] = [];
  readyState = 0;
  said: unknown[] = [];
  onmessage?: (event: { data: string }) => void;
  onclose?: (event: { code: number; reason: string }) => void;

  constructor(readonly url: string) {
    Socket.all.push(this);
  }
  send(text: string) {
    this.said.push(JSON.parse(text));
  }
  close() {
    this.readyState = 3;
  }
  hello(duration: number | null = null) {
    this.readyState = 1;
    this.onmessage?.({ data: JSON.stringify({ event: 'hello', rendition: 'v0', duration }) });
  }
  lose() {
    this.readyState = 3;
    this.onclose?.({ code: 1006, reason: '' });
  }
  get query() {
    return new URL(this.url).search;
  }
}

/** The newest connection. */
function newest(): Socket {
  const socket = Socket.all.at(-1);
  if (!socket) throw new Error('there is no connection');
  return socket;
}

class Source extends EventTarget {
  static canConstructInDedicatedWorker = false;
  readyState = 'closed';
}

const WISH: Wish = { url: 'ws://x/live/a/push', from: 'live', rendition: null, max: null, patience: 30 };

function opened(wish: Partial<Wish> = {}) {
  const reports: Report[] = [];
  const feed = new Feed((report) => reports.push(report));
  feed.obey({ do: 'open', wish: { ...WISH, ...wish } });
  return { feed, reports };
}

/** Lets the feed try again. An attempt comes 8 s after the one before at the latest. */
const again = () => vi.advanceTimersByTimeAsync(8_000);

beforeEach(() => {
  vi.useFakeTimers();
  Socket.all = [];
  vi.stubGlobal('WebSocket', Socket);
  vi.stubGlobal('MediaSource', Source);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** The HTTP status with which the server refuses connections from now on. */
const refuse = (status: number) => vi.stubGlobal('fetch', async () => new Response(null, { status }));

describe('wishes', () => {
  it('are told with the hello where they came before the connection was open', () => {
    const { feed } = opened({ rendition: 'v1' });
    expect(newest().query).toBe('?alive=1&rendition=v1');
    feed.obey({ do: 'want', wishes: { rendition: 'v2' } });
    feed.obey({ do: 'want', wishes: { max: 800_000 } });
    expect(newest().said).toEqual([]);
    newest().hello();
    expect(newest().said).toEqual([{ rendition: 'v2', max: 800_000 }]);
  });

  it('are told at once later, and are in the address of the next connection', async () => {
    refuse(503);
    const { feed } = opened({ max: 500_000 });
    newest().hello();
    feed.obey({ do: 'want', wishes: { rendition: 'v2' } });
    feed.obey({ do: 'want', wishes: { max: null } });
    expect(newest().said).toEqual([{ rendition: 'v2' }, { max: null }]);
    newest().lose();
    await again();
    expect(newest().query).toBe('?alive=1&rendition=v2');
    newest().hello();
    expect(newest().said).toEqual([]);
  });

  it('for a rendition outlast a server that does not have the stream for a while', async () => {
    refuse(404);
    opened({ rendition: 'v1' });
    newest().hello();
    newest().lose();
    await again();
    expect(newest().query).toBe('?alive=1&rendition=v1');
    newest().lose();
    await again();
    // Any other rendition is better than none.
    expect(newest().query).toBe('?alive=1');
    newest().hello();
    expect(newest().said).toEqual([{ rendition: 'v1' }]);
    newest().lose();
    await again();
    expect(newest().query).toBe('?alive=1&rendition=v1');
  });
});

describe('a connection on which nothing comes', () => {
  it('is left where a title goes on after a loss, until the patience is over', async () => {
    refuse(426);
    const { reports } = opened();
    newest().hello(60);
    newest().lose();
    await again();
    expect(Socket.all).toHaveLength(2);
    // The server accepts connections from now on, and answers nothing.
    await vi.advanceTimersByTimeAsync(60_000);
    expect(reports.at(-1)).toEqual({ is: 'failed', code: 'network', reason: 'the server is silent' });
  });

  it('is kept where a title takes long over a segment', async () => {
    opened();
    newest().hello(60);
    await vi.advanceTimersByTimeAsync(600_000);
    expect(Socket.all).toHaveLength(1);
    expect(newest().readyState).toBe(1);
  });
});
