// Publishes streams, and measures how well fresh pages play them in their first minute.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { addressOf, answerLate, fellBehind, markBehind, noteHls } from './plain.mjs';
import { openPage, SMALL, untilLive } from './support.mjs';

export const VIDEO = ['-f', 'lavfi', '-i', 'testsrc2=size=320x180:rate=30'];
export const AUDIO = ['-f', 'lavfi', '-i', 'sine=frequency=440:sample_rate=48000'];
/** Audio for 6 s of every 12 s. */
const AUDIO_AT_TIMES = [
  '-f',
  'lavfi',
  '-i',
  "sine=frequency=440:sample_rate=48000,aselect='lt(mod(t,12),6)'",
];
const REGULAR = ['-g', '60'];
/** The longest distance of irregular keyframes, in seconds. */
export const FAR = 10;
/** Keyframes 0.3 to 10 s apart, in no order, for almost a minute. */
const IRREGULAR = [
  '-g',
  '1000',
  '-force_key_frames',
  [0, 2, 2.3, 4.5, 9.9, 10.2, 12.4, 15, 15.7, 25.7, 26, 30, 35, 36, 38, 44, 46, 48, 50, 55].join(','),
];

/** ffmpeg's arguments for each kind of stream but the demo. */
export const VARIANTS = {
  'late audio': [...VIDEO, '-itsoffset', '3', ...AUDIO, ...REGULAR],
  'late video': ['-itsoffset', '3', ...VIDEO, ...AUDIO, ...REGULAR],
  'audio at times': [...VIDEO, ...AUDIO_AT_TIMES, ...REGULAR],
  'irregular keyframes': [...VIDEO, ...AUDIO, ...IRREGULAR],
};
/** Duration of each variant, in seconds. */
const LONG = '75';

/**
 * Encodes the variants into files, in a folder of their own. ffmpeg publishes video and audio from
 * such a file when each is due. If it encoded while it publishes, it would not do so in a pause of
 * one of them.
 */
export async function makeVariants(variants = VARIANTS, long = LONG) {
  const folder = await mkdtemp(join(tmpdir(), 'headwater-young-'));
  const made = await Promise.all(
    Object.entries(variants).map(async ([variant, inputs]) => {
      const file = join(folder, `${variant.replaceAll(' ', '-')}.flv`);
      const coding = ['-map', '0:v', '-map', '1:a', '-c:v', 'libx264', '-preset', 'ultrafast'];
      const form = ['-pix_fmt', 'yuv420p', '-sc_threshold', '0', '-c:a', 'aac', '-ac', '2', '-t', long];
      await ffmpeg([...inputs, ...coding, ...form, file]).ended;
      return [variant, file];
    }),
  );
  return { files: Object.fromEntries(made), remove: () => rm(folder, { recursive: true }) };
}

function ffmpeg(words) {
  const child = spawn('ffmpeg', ['-nostdin', '-loglevel', 'error', ...words], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  return { child, ended: new Promise((resolve) => child.once('exit', resolve)) };
}

/**
 * Publishes a file as `live/NAME` in real time until `stop`. `input` has further options of ffmpeg
 * for the file, and `output` for what is published. Resolves once the stream is live.
 */
export async function publishFile(server, file, name, input = [], output = []) {
  // By default ffmpeg holds video back for up to 10 s while no audio comes.
  const copy = ['-c', 'copy', '-max_interleave_delta', '200000', ...output, '-f', 'flv'];
  const { child, ended } = ffmpeg(['-re', ...input, '-i', file, ...copy, `${server.rtmp}/live/${name}`]);
  await untilLive(server.operators ?? server.url, `live/${name}`);
  return {
    /** Resolves when ffmpeg has ended: it has sent the whole file, or was stopped. */
    ended,
    /** Stops ffmpeg where it is. Its connection lasts. */
    pause: () => child.kill('SIGSTOP'),
    async stop() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

/** Waits for the first frame of `what` in this page. */
export async function untilFirstFrame(page, what) {
  await page
    .waitForFunction(() => window.seen.first !== null)
    .catch(async (error) => {
      throw new Error(`${what}: no picture: ${error.message}\n${await stateOf(page)}`);
    });
}

/** The state of a page's player, and its last requests, for the message of a failed test. */
function stateOf(page) {
  return page.evaluate(() => {
    const { buffered, currentTime, paused, readyState, seeking } = document.querySelector('video') ?? {};
    const ranges = Array.from({ length: buffered?.length ?? 0 }, (_, i) => [
      buffered.start(i),
      buffered.end(i),
    ]);
    const requests = performance.getEntriesByType('resource').slice(-30).map(window.describeRequest);
    const player = window.headwater?.stats();
    const { first, moves, played, frames } = window.seen;
    const seen = { first, moves, played, frames, visible: document.visibilityState };
    return JSON.stringify(
      { player, seen, currentTime, paused, readyState, seeking, ranges, requests },
      null,
      1,
    );
  });
}

/**
 * Watches `live/NAME` in a fresh page until it has played for `seconds` of media after its first
 * frame, but no longer than PATIENCE. Returns how long that took, how much the page played, the
 * standings, the number of frames shown, the number of frames decoded by the browser's own count, and
 * where hls.js fell behind (plain.mjs). `via` is a delivery of the watch page, `plain` for hls.js in
 * a page of its own, or `plain-dash` for dash.js. The answers of the page's workers come `late`
 * milliseconds late, as on a busy machine: hls.js parses media in workers.
 */
export async function watchYoung(browser, server, plain, name, via, seconds, late = 0) {
  const { page, complaints } = await openPage(browser, SMALL);
  try {
    if (late > 0) await page.addInitScript(answerLate, late);
    await page.addInitScript((watched) => {
      window.watchFor = watched;
    }, seconds);
    if (via === 'plain') await page.addInitScript(noteHls);
    await page.goto(addressOf(server, plain, name, via));
    await untilFirstFrame(page, `${name} by ${via}`);
    // On a busy machine this takes longer than `seconds`. The caller sees whether a page stood.
    await page.waitForFunction(() => window.seen.over).catch(() => {});
    const seen = await page.evaluate(() => {
      const { droppedVideoFrames } = document.querySelector('video').getVideoPlaybackQuality();
      const now = { now: performance.now(), dropped: droppedVideoFrames };
      return { ...window.seen, ...(window.seen.over ?? now), placed: window.placed ?? [] };
    });
    const behind = via === 'plain' ? await fellBehind(page) : [];
    markBehind(seen.standings, behind);
    return { ...seen, seconds: (seen.now - seen.first) / 1000, behind, complaints };
  } finally {
    await page.context().close();
  }
}
