#!/usr/bin/env node
// Compares the two consumers of study A (docs/studies.md): a page that fetches a film by ranges, and one that also
// appends them to a SourceBuffer. The study saw no difference, and gives no figures. Needs HEADWATER_BIN, ffmpeg and
// Chromium; run `npm ci` in web/ first.
//
//   scripts/bench-consumers.mjs [--rounds 9] [--chunk 65536] [--seconds 60] [--url http://…/film.mp4]
//
// Both read the same film one after the other, in turn, `rounds` times. As in the study, the page makes one request after
// another. An append goes on while the next range is fetched. Without `--url`, headwater serves the film. A server of
// your own (`--url`) must have that fragmented MP4 of H.264 and AAC.
//
// Prints medians (and the least and the most of the rounds) on standard output, and a line per round on standard error.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openPage, startBrowser, startServer } from '../web/e2e/support.mjs';

const asked = { rounds: 9, chunk: 65_536, seconds: 60, url: '' };
for (let i = 2; i < process.argv.length; i += 2) {
  const name = process.argv[i].replace(/^--/, '');
  if (!(name in asked) || process.argv[i + 1] === undefined) throw new Error(`not understood: ${process.argv[i]}`);
  asked[name] = name === 'url' ? process.argv[i + 1] : Number(process.argv[i + 1]);
  if (Number.isNaN(asked[name])) throw new Error(`no number: ${process.argv[i + 1]}`);
}

/** Makes the film: 6 Mbit/s, a fragment every 2 s. */
function make(path) {
  const video = ['-c:v', 'libx264', '-preset', 'ultrafast', '-b:v', '6M', '-g', '48', '-pix_fmt', 'yuv420p'];
  const words = ['-f', 'lavfi', '-i', 'testsrc2=size=1280x720:rate=24', '-f', 'lavfi', '-i', 'sine=sample_rate=48000'];
  words.push('-vf', 'noise=alls=20:allf=t:all_seed=1', ...video, '-c:a', 'aac', '-t', String(asked.seconds));
  words.push('-movflags', '+frag_keyframe+empty_moov+default_base_moof', path);
  const child = spawn('ffmpeg', ['-nostdin', '-loglevel', 'error', ...words], { stdio: ['ignore', 'ignore', 'inherit'] });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error(`ffmpeg: ${code}`))));
  });
}

/** Reads the whole film in the page. Returns its bytes, the seconds that took, those of each request, and the media appended. */
async function consume({ url, chunk, append }) {
  let buffer = null;
  if (append) {
    const source = new MediaSource();
    const video = document.createElement('video');
    video.src = URL.createObjectURL(source);
    await new Promise((resolve) => source.addEventListener('sourceopen', resolve, { once: true }));
    buffer = source.addSourceBuffer('video/mp4; codecs="avc1.42c01f,mp4a.40.2"');
  }
  const added = (bytes) =>
    new Promise((resolve, reject) => {
      buffer.addEventListener('updateend', resolve, { once: true });
      buffer.addEventListener('error', () => reject(new Error('not appended')), { once: true });
      buffer.appendBuffer(bytes);
    });
  const requests = [];
  let [at, size, pending] = [0, 1, null];
  const began = performance.now();
  while (at < size) {
    const sent = performance.now();
    const answer = await fetch(url, { headers: { Range: `bytes=${at}-${at + chunk - 1}` }, cache: 'no-store' });
    if (answer.status !== 206) throw new Error(`${url}: ${answer.status}`);
    const bytes = await answer.arrayBuffer();
    requests.push((performance.now() - sent) / 1000);
    size = Number(answer.headers.get('Content-Range').split('/')[1]);
    at += bytes.byteLength;
    if (append) {
      await pending;
      pending = added(bytes);
    }
  }
  await pending;
  const seconds = (performance.now() - began) / 1000;
  return { bytes: at, seconds, requests, buffered: buffer?.buffered.length ? buffer.buffered.end(0) : 0 };
}

/** Processor time of each process of the browser so far, in seconds, by its number. */
async function processorTimes(session) {
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  return new Map(processInfo.map(({ id, cpuTime }) => [id, cpuTime]));
}

const quantile = (values, part) => values.toSorted((a, b) => a - b)[Math.ceil(values.length * part) - 1];

async function round(browser, session, url, append) {
  // The server's pages may fetch only what they name.
  const { page } = await openPage(browser, { bypassCSP: true });
  try {
    // Any answer of the server makes the page one of its origin.
    await page.goto(new URL('/nothing', url).href);
    const before = await processorTimes(session);
    const { requests, ...got } = await page.evaluate(consume, { url, chunk: asked.chunk, append });
    // A process of the round before may have ended meanwhile.
    const after = [...(await processorTimes(session))];
    const cpu = after.reduce((sum, [id, time]) => sum + time - (before.get(id) ?? 0), 0);
    if (append && Math.abs(got.buffered - asked.seconds) > 1) throw new Error(`appended ${got.buffered} s of the film`);
    return {
      mbit: (got.bytes * 8) / got.seconds / 1e6,
      median: quantile(requests, 0.5) * 1000,
      p99: quantile(requests, 0.99) * 1000,
      cpu: cpu / (got.bytes / 1e9),
    };
  } finally {
    await page.context().close();
  }
}

const folder = await mkdtemp(join(tmpdir(), 'headwater-consumers-'));
let [server, browser] = [null, null];
try {
  let { url } = asked;
  if (!url) {
    await make(join(folder, 'film.mp4'));
    server = await startServer({ vod: folder, demo: false });
    url = `${server.url}/vod/film.mp4`;
  }
  browser = await startBrowser();
  const session = await browser.newBrowserCDPSession();
  const seen = { fetch: [], 'fetch and append': [] };
  // The first round of each warms up, and does not count.
  for (let turn = 0; turn <= asked.rounds; turn++)
    for (const [name, rounds] of Object.entries(seen)) {
      const one = await round(browser, session, url, name !== 'fetch');
      console.error(turn, name, JSON.stringify(one));
      if (turn > 0) rounds.push(one);
    }
  console.log(`${asked.rounds} rounds, ranges of ${asked.chunk} bytes: median (least–most of the rounds).\n`);
  console.log('| consumer | Mbit/s | median request, ms | 99 %, ms | CPU-seconds of the browser a GB |\n|---|---:|---:|---:|---:|');
  for (const [name, rounds] of Object.entries(seen)) {
    const cells = ['mbit', 'median', 'p99', 'cpu'].map((figure) => {
      const values = rounds.map((one) => one[figure]);
      const [least, middle, most] = [0, 0.5, 1].map((part) => quantile(values, Math.max(part, 1e-9)).toFixed(2));
      return `${middle} (${least}–${most})`;
    });
    console.log(`| ${name} | ${cells.join(' | ')} |`);
  }
} finally {
  await browser?.close();
  await server?.stop();
  await rm(folder, { recursive: true });
}
