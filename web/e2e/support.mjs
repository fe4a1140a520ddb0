import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const ARTEFACTS = fileURLToPath(new URL('../../artefacts/', import.meta.url));
export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
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
 * The server under test: HEADWATER_URL where it runs already, else HEADWATER_BIN, started here on free ports.
 * With `vod`, a folder of files to serve, or `config`, a configuration file's content, it is always started here.
 */
export async function startServer({ vod, config } = {}) {
  if (process.env.HEADWATER_URL && !vod && !config) {
    const url = process.env.HEADWATER_URL.replace(/\/$/, '');
    await untilLive(url);
    return { url, stop: async () => {} };
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
    ['serve', '--demo', '--http', '127.0.0.1:0', '--rtmp', '127.0.0.1:0', ...files],
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
      const [, http, rtmp] = /^ready http=(\S+) rtmp=(\S+)$/.exec(line) ?? [];
      if (http && rtmp) resolve({ http, rtmp });
      else reject(new Error(`not the ready line: ${line}`));
    });
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`the server ended with ${code} before it was ready`)));
  });
  try {
    const { http, rtmp } = await within(20_000, ready, 'the ready line');
    const url = `http://${http}`;
    await untilLive(url);
    return { url, rtmp: `rtmp://${rtmp}`, stop };
  } catch (error) {
    if (child.exitCode === null && child.pid !== undefined) await stop();
    throw error;
  }
}

export async function untilLive(url, wanted = 'live/demo', enough = () => true) {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const { streams } = await (await fetch(`${url}/api/v1/streams`)).json();
    const stream = streams.find(({ name, state }) => name === wanted && state === 'live');
    if (stream && enough(stream)) return;
    if (Date.now() > deadline) throw new Error(`${wanted} is not live`);
    await new Promise((resolve) => setTimeout(resolve, 100));
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

/** Chromium with an empty profile. */
export function startBrowser() {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

/**
 * A page in a context of its own, and what it complained of: console errors, exceptions, requests that
 * were answered with an error.
 */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(`console: ${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => complaints.push(`exception: ${error.stack ?? error}`));
  page.on('response', (response) => {
    if (response.status() >= 400) complaints.push(`${response.status()} ${response.url()}`);
  });
  return { page, complaints };
}

/** `window.headwater.stats()` of a watch page. */
export function stats(page) {
  return page.evaluate(() => window.headwater.stats());
}

/** Stalls later than a second after the first frame. */
export function lateStalls({ stallList, moments }) {
  return stallList.filter(({ at }) => at > moments.firstFrame + 1000);
}

export async function untilCondition(page, kind, timeout = 15_000) {
  await page.waitForFunction((wanted) => window.headwater.stats().condition === wanted, kind, { timeout });
}

/** Keeps a picture of the page under artefacts/. */
export async function keep(page, name) {
  await mkdir(ARTEFACTS, { recursive: true });
  await page.screenshot({ path: join(ARTEFACTS, `web-${name}.png`), fullPage: true });
}

/** Asks axe-core; a violation fails with the rule and the elements. */
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

/** Answers the list of streams in the server's stead from now on: `edit` changes what the server says. */
export async function fakeStreams(page, edit) {
  const routed = edits.has(page);
  edits.set(page, edit);
  if (routed) return;
  await page.route('**/api/v1/streams', async (route) => {
    const response = await route.fetch();
    const answer = await response.json();
    await route.fulfill({ response, json: { ...answer, streams: edits.get(page)(answer.streams) } });
  });
}
