// Publishes streams, and measures how well fresh pages play them in their first minute.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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
  await untilLive(server.url, `live/${name}`);
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

/**
 * Runs in the page before its own scripts. Delays the answers of workers by `late` milliseconds,
 * and keeps their order.
 */
function answerLate(late) {
  const { addEventListener } = Worker.prototype;
  Worker.prototype.addEventListener = function (type, listener, ...options) {
    const later = (event) => setTimeout(() => listener.call(this, event), late);
    addEventListener.call(this, type, type === 'message' ? later : listener, ...options);
  };
}

/** Players with their default settings: the name of the page, and the manifest that it plays. */
const PLAIN = { plain: 'index.m3u8', 'plain-dash': 'manifest.mpd' };

/** The URL that plays `live/NAME` by `via`: a delivery of the watch page, or a player of PLAIN. */
export function addressOf(server, plain, name, via) {
  return via in PLAIN
    ? `${plain.url}${via}?url=${encodeURIComponent(`${server.url}/live/${name}/${PLAIN[via]}`)}`
    : `${server.url}/watch/live/${name}?via=${via}`;
}

/**
 * Starts a site with two pages, one for hls.js and one for dash.js, with their default settings.
 */
export async function startPlain() {
  const { resolve } = createRequire(import.meta.url);
  const libraries = {
    '/hls.js': await readFile(resolve('hls.js/dist/hls.js')),
    '/dash.js': await readFile(resolve('dashjs')),
  };
  const page = (player) => `<!doctype html><title>${player}</title><video muted autoplay></video>
    <script src="/${player}.js"></script>
    <script>
      const [url, video] = [new URLSearchParams(location.search).get('url'), document.querySelector('video')];
      if (window.Hls) {
        window.hls = new Hls();
        window.watchHls?.(hls);
        hls.loadSource(url);
        hls.attachMedia(video);
      } else dashjs.MediaPlayer().create().initialize(video, url, true);
    </script>`;
  const site = createServer(({ url }, response) => {
    const { pathname } = new URL(url, 'http://localhost');
    const library = libraries[pathname];
    if (library) response.writeHead(200, { 'Content-Type': 'text/javascript' }).end(library);
    else if (pathname === '/favicon.ico') response.writeHead(204).end();
    else
      response
        .writeHead(200, { 'Content-Type': 'text/html' })
        .end(page(pathname === '/plain-dash' ? 'dash' : 'hls'));
  });
  site.listen(0, '127.0.0.1');
  await once(site, 'listening');
  return {
    url: `http://127.0.0.1:${site.address().port}/`,
    close() {
      site.closeAllConnections();
      site.close();
    },
  };
}

/**
 * Runs in the page before its own scripts. Notes by how many seconds hls.js places each fragment or part later than the
 * media in it begin (`off`). Notes also which media hls.js asked for late (`skipped`, from and to):
 * the playlist has several new parts, and the second was captured before hls.js asked. All times are
 * those of hls.js.
 */
function noteHls() {
  [window.placed, window.skipped] = [[], []];
  window.watchHls = (hls) => {
    hls.on('hlsFragBuffered', (_event, { frag, part }) => {
      const of = part ?? frag;
      const media = part ? part.elementaryStreams : frag.elementaryStreams;
      for (const kind of ['audio', 'video']) {
        const stream = media?.[kind];
        if (stream)
          window.placed.push({ kind, sn: frag.sn, part: part?.index, off: of.start - stream.startPTS });
      }
    });
    for (const event of ['hlsLevelLoaded', 'hlsAudioTrackLoaded']) {
      let before = null;
      hls.on(event, (_event, { details, stats }) => {
        const { partList, lastPartSn, lastPartIndex } = details;
        const isNew = ({ fragment: { sn }, index }) =>
          sn > before.sn || (sn === before.sn && index > before.index);
        const [, second] = before ? (partList ?? []).filter(isNew) : [];
        if (second) {
          const { fragment, fragOffset, duration } = second;
          const captured = fragment.programDateTime + (fragOffset + duration) * 1000;
          const asked = performance.timeOrigin + stats.loading.start;
          // hls.js places the media of a playlist a little later.
          if (captured < asked) window.skipped.push({ before: before.details, details });
        }
        before = { sn: lastPartSn, index: lastPartIndex, details };
      });
    }
  };
}

/** Waits for the first frame of `what` in this page. */
export async function untilFirstFrame(page, what) {
  await page
    .waitForFunction(() => window.seen.first !== null)
    .catch((error) => {
      throw new Error(`${what}: no picture: ${error.message}`);
    });
}

/**
 * Watches `live/NAME` in a fresh page until it has played for `seconds` of media after its first
 * frame, but no longer than PATIENCE. Returns how long that took, how much the page played, the
 * standings, the number of frames shown, and the number of frames decoded by the browser's own
 * count. `via` is a delivery of the watch page, `plain` for hls.js in a page of its own, or
 * `plain-dash` for dash.js. The answers of the page's workers come `late` milliseconds late, as on
 * a busy machine: hls.js parses media in workers.
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
      const { totalVideoFrames, droppedVideoFrames } = document
        .querySelector('video')
        .getVideoPlaybackQuality();
      const { placed = [], skipped = [], seen } = window;
      const now = { now: performance.now(), decoded: totalVideoFrames, dropped: droppedVideoFrames };
      const from = ({ before, details }) => [before.partEnd, details.partEnd];
      return { ...seen, ...(seen.over ?? now), placed, skipped: skipped.map(from) };
    });
    for (const standing of seen.standings) {
      standing.behind = seen.skipped.some(([from, to]) => from - 0.1 <= standing.time && standing.time <= to);
    }
    return { ...seen, seconds: (seen.now - seen.first) / 1000, complaints };
  } finally {
    await page.context().close();
  }
}
