#!/usr/bin/env node
// Measures how soon a viewer that joins between keyframes sees a picture, for each delivery, and
// how soon the page is as close behind live as it should be. Needs HEADWATER_BIN, ffmpeg and
// Chromium; run `npm ci` in web/ first.
//
//   scripts/bench-joins.mjs [--keyframes 8] [--joins 8] [--via page-llhls,…] [--settle 20]
//
// A stream of 30 pictures a second, with a keyframe every `keyframes` seconds, is published in real
// time. After 30 s of it, fresh viewers join one after the other, at moments spread evenly over the
// keyframe distance. Viewers are our page (`page-DELIVERY`), unmodified hls.js and dash.js
// (`hlsjs`, `dashjs`), and ffmpeg up to its first decoded picture (`ffmpeg-URL`). Pages are watched
// for `settle` seconds after the first picture. Prints a table on standard output, and a line per
// viewer on standard error.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openPage, startBrowser, startServer, stats } from '../web/e2e/support.mjs';
import { publishFile, watchYoung } from '../web/e2e/young.mjs';
import { startPlain } from '../web/e2e/plain.mjs';

const asked = {
  keyframes: 8,
  joins: 8,
  via: 'page-llhls,page-dash,page-push,hlsjs,dashjs,ffmpeg-rtmp,ffmpeg-flv,ffmpeg-mp4',
  settle: 20,
};
for (let i = 2; i < process.argv.length; i += 2) {
  const name = process.argv[i].replace(/^--/, '');
  if (!(name in asked) || process.argv[i + 1] === undefined) throw new Error(`not understood: ${process.argv[i]}`);
  asked[name] = name === 'via' ? process.argv[i + 1] : Number(process.argv[i + 1]);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Runs ffmpeg to its end; how long it took, in milliseconds. */
function ffmpeg(words) {
  const began = performance.now();
  const child = spawn('ffmpeg', ['-nostdin', '-loglevel', 'error', ...words], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  return new Promise((resolve, reject) => {
    child.once('exit', (code) => (code === 0 ? resolve(performance.now() - began) : reject(new Error(`ffmpeg: ${code}`))));
  });
}

/** What viewers are shown, once it is there. */
const stage = {};

/** One that our page plays: when its first picture came, how far behind it was then, and when it was where it means to be. */
async function page(via) {
  const { page } = await openPage(stage.browser);
  try {
    let [first, behind, settled] = [null, null, null];
    const from = performance.now();
    await page.goto(`${stage.server.url}/watch/live/joins?via=${via}`);
    while (performance.now() - from < asked.settle * 1000) {
      const now = await stats(page);
      first ??= now.moments.firstFrame ?? null;
      if (now.latency !== null) {
        behind ??= now.latency;
        if (now.latency - (now.targetLatency ?? 0) <= 1) settled ??= (performance.now() - from) / 1000;
        else settled = null;
      }
      await sleep(100);
    }
    const last = await stats(page);
    return { first, behind, settled, target: last.targetLatency, last: last.latency };
  } finally {
    await page.context().close();
  }
}

const viewers = {
  'page-llhls': () => page('llhls'),
  'page-hls': () => page('hls'),
  'page-dash': () => page('dash'),
  'page-push': () => page('push'),
  hlsjs: () => watchYoung(stage.browser, stage.server, stage.plain, 'joins', 'plain', 1),
  dashjs: () => watchYoung(stage.browser, stage.server, stage.plain, 'joins', 'plain-dash', 1),
  'ffmpeg-rtmp': async () => ({ first: await decoded(`${stage.server.rtmp}/live/joins`) }),
  'ffmpeg-flv': async () => ({ first: await decoded(`${stage.server.url}/live/joins/live.flv`) }),
  'ffmpeg-mp4': async () => ({ first: await decoded(`${stage.server.url}/live/joins/live.mp4`) }),
};
// By default ffmpeg examines up to 5 s of a stream before it decodes any of it.
const decoded = (url) =>
  ffmpeg(['-probesize', '32768', '-analyzeduration', '0', '-i', url, '-map', '0:v', '-frames:v', '1', '-f', 'null', '-']);

const figure = (values, digits) => {
  const known = values.filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
  if (known.length === 0) return '';
  const shown = [known[0], known[known.length >> 1], known.at(-1)].map((value) => value.toFixed(digits));
  return `${shown.join(' / ')}${known.length < values.length ? ` (${known.length} of ${values.length})` : ''}`;
};
const vias = asked.via.split(',');
const unknown = vias.find((via) => !(via in viewers));
if (unknown !== undefined) throw new Error(`no such viewer: ${unknown}`);

const folder = await mkdtemp(join(tmpdir(), 'headwater-joins-'));
let publisher = null;
try {
  const clip = join(folder, 'clip.flv');
  const coding = ['-c:v', 'libx264', '-preset', 'ultrafast', '-pix_fmt', 'yuv420p', '-sc_threshold', '0'];
  const distance = String(asked.keyframes * 30);
  const inputs = ['-f', 'lavfi', '-i', 'testsrc2=size=640x360:rate=30', '-f', 'lavfi', '-i', 'sine=sample_rate=48000'];
  const whole = ['-g', distance, '-keyint_min', distance, '-c:a', 'aac', '-t', String(asked.keyframes * 4)];
  await ffmpeg([...inputs, ...coding, ...whole, clip]);

  stage.server = await startServer({ config: '' });
  stage.browser = await startBrowser();
  stage.plain = await startPlain();
  publisher = await publishFile(stage.server, clip, 'joins', ['-stream_loop', '-1']);
  const begun = performance.now();

  console.log(`Keyframes ${asked.keyframes} s apart, ${asked.joins} joins: least / median / most.\n`);
  console.log('| viewer | first picture, s | behind live then, s | target, s | within 1 s of it after, s | behind at the end, s |');
  console.log('|---|---|---|---|---|---|');
  for (const via of vias) {
    const seen = [];
    for (let turn = 0; turn < asked.joins; turn++) {
      // The position between two keyframes.
      const phase = (turn / asked.joins) * asked.keyframes * 1000;
      const [age, whole] = [performance.now() - begun, asked.keyframes * 1000];
      const soonest = Math.max(age, 30_000);
      await sleep(Math.ceil((soonest - phase) / whole) * whole + phase - age);
      const one = await viewers[via]().catch((error) => ({ first: null, error: error.message }));
      console.error(via, phase, JSON.stringify(one, ['first', 'behind', 'settled', 'target', 'last', 'error']));
      seen.push(one);
    }
    const column = (name, digits, scale = 1) =>
      figure(
        seen.map((one) => (typeof one[name] === 'number' ? one[name] / scale : null)),
        digits,
      );
    const cells = [via, column('first', 2, 1000), column('behind', 1), column('target', 1), column('settled', 1)];
    console.log(`| ${[...cells, column('last', 1)].join(' | ')} |`);
  }
} finally {
  await publisher?.stop();
  await stage.browser?.close();
  stage.plain?.close();
  await stage.server?.stop();
  await rm(folder, { recursive: true });
}
