import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { type Connection, follow } from './follow';

interface Line {
  key: number;
  text: string;
}

/** A stream of events whose server the test plays. */
class Events extends EventTarget {
  static readonly CLOSED = 2;
  static all: Events[] = [];
  readyState = 0;
  constructor(readonly url: string) {
    super();
    Events.all.push(this);
  }
  close() {
    this.readyState = Events.CLOSED;
  }
  say(data: string, lastEventId: string) {
    this.dispatchEvent(Object.assign(new Event('line'), { data, lastEventId }));
  }
}

/** The page's document: whether somebody sees it. */
class Page extends EventTarget {
  visibilityState = 'visible';
  show(isVisible: boolean) {
    this.visibilityState = isVisible ? 'visible' : 'hidden';
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

const source = { path: '/log', names: ['line'], parse: (text: string) => ({ text }), add: () => [] };
const open = () => Events.all.filter(({ readyState }) => readyState !== Events.CLOSED).map(({ url }) => url);
let page: Page;

beforeEach(() => {
  vi.useFakeTimers();
  Events.all = [];
  page = new Page();
  vi.stubGlobal('document', page);
  vi.stubGlobal('EventSource', Events);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it('keeps a connection only while the page is visible, and then reads all anew', () => {
  let lines: string[] = [];
  const stop = follow<Line>(
    source,
    (news, _lost, anew) => {
      lines = [...(anew ? [] : lines), ...news.map(({ text }) => text)];
    },
    () => {},
  );
  expect(open()).toEqual(['/log?after=0']);
  Events.all[0]?.say('one', '7');
  vi.advanceTimersByTime(1_000);
  Events.all[0]?.say('two', '8');
  vi.advanceTimersByTime(1_000);
  expect(lines).toEqual(['one', 'two']);
  page.show(false);
  expect(open()).toEqual([]);
  vi.advanceTimersByTime(60_000);
  expect(open()).toEqual([]);
  page.show(true);
  // The server began anew meanwhile, and so did its numbers.
  expect(open()).toEqual(['/log?after=0']);
  Events.all[1]?.say('three', '1');
  vi.advanceTimersByTime(1_000);
  expect(lines).toEqual(['three']);
  stop();
  page.show(true);
  expect(open()).toEqual([]);
});

it('begins when a page that was opened behind others comes into sight', () => {
  page.show(false);
  follow<Line>(
    source,
    () => {},
    () => {},
  );
  expect(open()).toEqual([]);
  page.show(true);
  expect(open()).toEqual(['/log?after=0']);
});

it('does not try again in a page that was hidden while the server was asked for the reason', async () => {
  vi.stubGlobal('fetch', async () => new Response(null, { status: 503 }));
  const states: Connection[] = [];
  follow<Line>(
    source,
    () => {},
    (state) => states.push(state),
  );
  const fail = () => {
    const events = Events.all.at(-1);
    events?.close();
    events?.dispatchEvent(new Event('error'));
  };
  fail();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(open()).toEqual(['/log?after=0']);
  fail();
  page.show(false);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(open()).toEqual([]);
  expect(states).toEqual(['cut', 'cut']);
});
