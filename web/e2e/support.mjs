import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { ASKS, JUMP, LITTLE, observe, STANDS } from './standings.mjs';
import { watchProcesses } from './stops.mjs';

const ARTEFACTS = fileURLToPath(new URL('../../artefacts/', import.meta.url));
/** Chromium as people use it, with windows and tabs. */
export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
/**
 * Chromium without windows, tabs and pages of its own: the same player of media for three fifths of the
 * processor time.
 */
export const HEADLESS = process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell';
export const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--autoplay-policy=no-user-gesture-required',
];

/**
 * How long tests wait for things that take a moment, in milliseconds. A busy machine takes many times
 * longer than a quiet one.
 */
export const PATIENCE = 60_000;

/** Asks the server once more if it closed the kept connection at the same moment. */
export const AGAIN = { maxRetries: 2 };

/**
 * The server under test. If HEADWATER_URL names a running server, it is that one; else this starts
 * HEADWATER_BIN on free ports. This always starts a server if the test gives `vod`, a folder of
 * files to serve, or `config`, the content of a configuration file. With `demo` false it publishes nothing.
 */
export async function startServer({ vod, config, demo = true, operated = false } = {}) {
  watchProcesses();
  if (process.env.HEADWATER_URL && !vod && config === undefined) {
    const url = process.env.HEADWATER_URL.replace(/\/$/, '');
    await untilLive(url);
    return { url, operators: url, stop: async () => {} };
  }
  const binary = process.env.HEADWATER_BIN;
  if (!binary)
    throw new Error('set HEADWATER_BIN to a headwater binary (or HEADWATER_URL, for live streams only)');
  const home = await mkdtemp(join(tmpdir(), 'headwater-e2e-'));
  const files = vod ? ['--vod', vod] : [];
  if (config) {
    await writeFile(join(home, 'headwater.toml'), config);
    files.push('--config', 'headwater.toml');
  }
  const child = spawn(
    binary,
    [
      'serve',
      ...(demo ? ['--demo'] : []),
      '--http',
      '127.0.0.1:0',
      '--rtmp',
      '127.0.0.1:0',
      '--webrtc',
      '127.0.0.1:0',
      ...(operated ? ['--control', '127.0.0.1:0'] : []),
      ...files,
    ],
    {
      cwd: home,
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const stop = async () => {
    child.kill('SIGTERM');
    // The server promises to be gone within ten seconds.
    const late = setTimeout(() => child.kill('SIGKILL'), 12_000);
    await ended;
    clearTimeout(late);
    await rm(home, { recursive: true });
  };
  const ready = new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).once('line', (line) => {
      const told = /^ready http=(\S+) rtmp=(\S+) webrtc=\S+(?: control=(\S+))?$/.exec(line);
      if (told) resolve({ http: told[1], rtmp: told[2], control: told[3] });
      else reject(new Error(`not the ready line: ${line}`));
    });
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`the server ended with ${code} before it was ready`)));
  });
  try {
    const { http, rtmp, control } = await within(PATIENCE, ready, 'the ready line');
    const url = `http://${http}`;
    const operators = `http://${control ?? http}`;
    if (demo) await untilLive(operators);
    return { url, operators, rtmp: `rtmp://${rtmp}`, stop };
  } catch (error) {
    if (child.exitCode === null && child.pid !== undefined) await stop();
    throw error;
  }
}

export function untilLive(url, wanted = 'live/demo', enough = () => true) {
  return untilState(url, wanted, 'live', enough);
}

/** Waits until the server lists the stream in this state, and returns what it says of it. */
export function untilState(url, wanted, awaited, enough = () => true) {
  const read = async () => {
    // A server may close a connection that was idle for long just when a request begins on it.
    const headers = { connection: 'close' };
    const { streams } = await (await fetch(`${url}/api/v1/streams`, { headers })).json();
    return streams.find(({ name }) => name === wanted);
  };
  const isThere = (stream) => stream?.state === awaited && enough(stream);
  return untilEnough(read, isThere, `${wanted} is not as awaited, ${awaited}`);
}

/**
 * Reads until `enough` holds of what was read, and returns that. `every` is the pause between reads, in
 * milliseconds. An error says `what` is wrong, and what was read last.
 */
export async function untilEnough(read, enough, what, every = 100) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const value = await read();
    if (enough(value)) return value;
    if (Date.now() > deadline)
      throw new Error(`${what}: ${typeof value === 'string' ? value : JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, every));
  }
}

/** Rejects when `promise` takes longer than `ms`. */
export function within(ms, promise, what) {
  let timer;
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Starts Chromium with an empty profile. */
export function startBrowser() {
  return chromium.launch({ executablePath: HEADLESS, args: FLAGS });
}

/**
 * Options of a small page. Without a graphics card the processors paint: of small pages more can
 * play at once.
 */
export const SMALL = { viewport: { width: 480, height: 360 } };

/**
 * Opens a page in a context of its own, which notes its standings (standings.mjs). Returns it with
 * its complaints: console errors, exceptions, and requests that the server answered with an error.
 * The page moves nothing: halfway through a transition, a button has too little contrast.
 */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: 'reduce',
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  // By default Playwright asks before each frame that the page paints. On a busy machine Chromium has painted none for
  // a minute, though the page's scripts and its video went on.
  const { waitForFunction } = page;
  page.waitForFunction = (predicate, argument, options) =>
    waitForFunction.call(page, predicate, argument, { polling: 50, ...options });
  await page.addInitScript(observe, [STANDS, JUMP, ASKS, LITTLE]);
  const complaints = [];
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(`console: ${message.text()} ${message.location().url}`);
  });
  page.on('crash', () => console.error(`Chromium's process of ${page.url()} crashed`));
  page.on('pageerror', (error) => complaints.push(`exception: ${error.stack ?? error}`));
  page.on('response', (response) => {
    if (response.status() >= 400) complaints.push(`${response.status()} ${response.url()}`);
  });
  return { page, complaints };
}

/**
 * Makes a page wait for longer than any test where it would wait for exactly `time` milliseconds. With `later`, only
 * once `window.putOff` is set.
 */
export function putOff(page, time, later = false) {
  return page.addInitScript(
    ([long, later]) => {
      const { setTimeout } = window;
      window.putOff = !later;
      window.setTimeout = (call, time, ...rest) =>
        setTimeout.call(window, call, window.putOff && time === long ? 600_000 : time, ...rest);
    },
    [time, later],
  );
}

/** Makes a page wait for the server's answers for as long as they take. Pages wait for 5 s, as src/shared/api.ts does. */
export function awaitAnswers(page) {
  return page.addInitScript(() => {
    const { timeout } = AbortSignal;
    AbortSignal.timeout = (time) => timeout.call(AbortSignal, time === 5_000 ? 600_000 : time);
  });
}

/** For how long a watch page waits for a connection by WebRTC (src/watch/engines/webrtc.ts), in milliseconds. */
export const CONNECT = 5_000;

/** `window.headwater.stats()` of a watch page. */
export function stats(page) {
  return page.evaluate(() => window.headwater.stats());
}

export async function untilCondition(page, kind) {
  await page.waitForFunction((wanted) => window.headwater.stats().condition === wanted, kind);
}

export const position = (page) => page.evaluate(() => document.querySelector('video').currentTime);

/** Waits until the picture is at `time` or later, in seconds of the media. */
export function untilTime(page, time) {
  return page.waitForFunction((least) => document.querySelector('video').currentTime >= least, time);
}

/**
 * Seeks, and plays from there. A busy machine may have come to the end of a short title meanwhile,
 * which pauses it.
 */
export const seek = (page, time) =>
  page.evaluate((to) => {
    const video = document.querySelector('video');
    video.currentTime = to;
    if (video.paused) video.play();
  }, time);

/**
 * Waits until a title plays, and the page says so. A busy machine may look only after a short title has
 * ended.
 */
export const untilBegun = (page) =>
  page.waitForFunction(() => {
    const { condition } = window.headwater.stats();
    const { ended } = document.querySelector('video') ?? {};
    return condition === 'playing' || (ended && condition === 'ended' && window.seen.played > 0);
  });

/**
 * Waits until the picture of a title has come to `time`, presses Pause, and sets the picture there. On a
 * busy machine the picture may be anywhere later by then, also at the end. Returns where it was, in seconds.
 */
export async function pauseAt(page, time) {
  const paused = await page.waitForFunction((at) => {
    const video = document.querySelector('video');
    if (video.currentTime < at) return null;
    // At the end of a title there is no such button.
    document.querySelector('button[aria-label=Pause]')?.click();
    const reached = video.currentTime;
    video.currentTime = at;
    return { reached };
  }, time);
  return (await paused.jsonValue()).reached;
}

/** Waits until the page has played `seconds` of media from now on, however long that takes. */
export async function playOn(page, seconds) {
  const begin = await page.evaluate(() => window.seen.played);
  await page.waitForFunction((until) => window.seen.played >= until, begin + seconds);
}

/**
 * Plays `seconds` of a title between `begin` and `end`. The picture stands still while these run, so
 * the page plays no longer than that, however late a busy machine runs this test.
 */
export async function playBetween(page, begin, seconds, end) {
  await page.evaluate(() => {
    document.querySelector('video').pause();
    window.until = undefined;
  });
  await begin();
  await page.waitForFunction((more) => {
    const video = document.querySelector('video');
    if (window.until === undefined) {
      window.until = window.seen.played + more;
      video.play();
    }
    if (window.seen.played < window.until) return false;
    video.pause();
    return true;
  }, seconds);
  await end();
  await page.evaluate(() => document.querySelector('video').play());
}

/**
 * Waits until the page has played all media between two times. The browser keeps account of this, so
 * it does not matter how much the page has played by the time that the test looks.
 */
export async function untilPlayed(page, from, to) {
  const read = () =>
    page.evaluate(() => {
      const { played } = document.querySelector('video');
      const ranges = Array.from({ length: played.length }, (_, i) => [played.start(i), played.end(i)]);
      return { ranges, ...window.headwater?.stats() };
    });
  const isPlayed = ({ ranges }) => {
    // Browsers begin at a frame, and so a little later. A player may move by less than a frame where a decoder waits.
    let end = from;
    for (const range of ranges) if (range[0] < end + 0.1) end = Math.max(end, range[1]);
    return end >= to;
  };
  await untilEnough(read, isPlayed, `not played from ${from} to ${to}`);
}

/** Makes the page note in `window.sought` where each seek from now on goes to, in seconds of the media. */
export async function noteSeeks(page) {
  await page.evaluate(() => {
    const video = document.querySelector('video');
    window.sought = [];
    video.addEventListener('seeking', () => window.sought.push(video.currentTime));
  });
}

/** Plays a title that has ended once more. Waits until it plays from its beginning. */
export async function playAgain(page) {
  await noteSeeks(page);
  await page.getByRole('button', { name: 'Play' }).click();
  await page.waitForFunction(() => window.sought.length > 0);
  const [first] = await page.evaluate(() => window.sought);
  assert.ok(first < 0.1, `begins again at ${first}`);
  await playOn(page, 0.5);
}

/** Saves a screenshot of the page under artefacts/. */
export async function keep(page, name) {
  await mkdir(ARTEFACTS, { recursive: true });
  await page.screenshot({ path: join(ARTEFACTS, `web-${name}.png`), fullPage: true });
}

/** Checks the page with axe-core. A violation fails with the rule and the elements. */
export async function assertAccessible(page) {
  const source = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  await page.evaluate(source);
  const violations = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    });
    return violations.map(
      ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ target }) => target).join(' ')}`,
    );
  });
  assert.deepEqual(violations, []);
}

const edits = new WeakMap();

/**
 * Changes the server's answers to requests for the list of streams, or for one of them, from now on: `edit` gets a list
 * and returns the one that the page gets.
 */
export async function fakeStreams(page, edit) {
  const routed = edits.has(page);
  edits.set(page, edit);
  if (routed) return;
  await page.route('**/api/v1/streams', async (route) => {
    const response = await route.fetch(AGAIN);
    const answer = await response.json();
    await route.fulfill({ response, json: { ...answer, streams: edits.get(page)(answer.streams) } });
  });
  await page.route('**/api/v1/streams/**', async (route) => {
    const response = await route.fetch(AGAIN);
    const name = new URL(route.request().url()).pathname.split('/api/v1/streams/')[1];
    const streams = edits.get(page)([await response.json()].filter((stream) => stream !== null));
    await route.fulfill({ response, json: streams.find((stream) => stream.name === name) ?? null });
  });
}
