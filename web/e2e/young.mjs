// Streams in the first minute of their life, and how well fresh pages play them.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openPage, untilLive } from './support.mjs';

/** A picture that stands for longer, after the first, is seen to: milliseconds. */
export const STANDS = 300;

export const PICTURES = ['-f', 'lavfi', '-i', 'testsrc2=size=320x180:rate=30'];
export const SOUND = ['-f', 'lavfi', '-i', 'sine=frequency=440:sample_rate=48000'];
/** Sound for 6 s of every 12. */
const SOUND_AT_TIMES = [
  '-f',
  'lavfi',
  '-i',
  "sine=frequency=440:sample_rate=48000,aselect='lt(mod(t,12),6)'",
];
const REGULAR = ['-g', '60'];
/** 0.3 to 6 s apart, in any order, for a minute. */
const IRREGULAR = [
  '-g',
  '1000',
  '-force_key_frames',
  [0, 2, 2.3, 4.5, 9.9, 10.2, 12.4, 15, 15.7, 21, 23, 23.4, 26, 30, 35, 36, 38, 44, 46, 48, 50, 55].join(','),
];

/** What ffmpeg is told, of each kind of stream but the demo. */
export const VARIANTS = {
  'late audio': [...PICTURES, '-itsoffset', '3', ...SOUND, ...REGULAR],
  'late video': ['-itsoffset', '3', ...PICTURES, ...SOUND, ...REGULAR],
  'audio at times': [...PICTURES, ...SOUND_AT_TIMES, ...REGULAR],
  'irregular keyframes': [...PICTURES, ...SOUND, ...IRREGULAR],
};
/** How long each of them is, in seconds. */
const LONG = '50';

/**
 * Files of the variants in a folder of their own: read from one, picture and sound are sent when they are due, which
 * ffmpeg does not see to where it encodes and one of them pauses.
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
 * Publishes a file as `live/NAME` in real time until `stop`; `input` is what ffmpeg is told of the file besides.
 * Resolves once it is live.
 */
export async function publishFile(server, file, name, input = []) {
  // By itself ffmpeg keeps pictures back for up to 10 s where no sound comes.
  const copy = ['-c', 'copy', '-max_interleave_delta', '200000', '-f', 'flv'];
  const { child, ended } = ffmpeg(['-re', ...input, '-i', file, ...copy, `${server.rtmp}/live/${name}`]);
  await untilLive(server.url, `live/${name}`);
  return {
    /** All of it is sent. */
    ended,
    async stop() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

/**
 * In the page, before all else: notes when pictures are shown, and where the video element stands. With each stand
 * goes how much media there was ahead (seconds), and for how long the page itself was not run (`late`, milliseconds):
 * a page that stands with media ahead, or is not run, waits for the machine and not for the stream.
 */
export function observe(stands) {
  const seen = { first: null, moves: 0, frames: 0, standings: [], rate: [] };
  window.seen = seen;
  let [time, since, standing, looked, late] = [-1, 0, null, performance.now(), 0];
  const ahead = ({ buffered, currentTime }) => {
    for (let i = 0; i < buffered.length; i++) {
      if (buffered.start(i) <= currentTime + 0.1 && currentTime < buffered.end(i))
        return buffered.end(i) - currentTime;
    }
    return 0;
  };
  const look = () => {
    const video = document.querySelector('video');
    const now = performance.now();
    [looked, late] = [now, Math.max(late, now - looked)];
    if (video && seen.first === null && video.requestVideoFrameCallback && !video.observed) {
      video.observed = true;
      const shown = (at) => {
        seen.first ??= at;
        seen.frames += 1;
        video.requestVideoFrameCallback(shown);
      };
      video.requestVideoFrameCallback(shown);
    }
    if (!video || seen.first === null) return;
    if (video.currentTime !== time) {
      [time, since, standing, late] = [video.currentTime, now, null, 0];
      seen.moves += 1;
      // The first picture is there before it moves, for as long as it takes to have enough to play.
    } else if (now - since > stands && seen.moves > 1) {
      if (!standing) {
        standing = { at: Math.round(since - seen.first), time, ms: 0, ahead: ahead(video), late: 0 };
        seen.standings.push(standing);
      }
      [standing.ms, standing.late] = [Math.round(now - since), Math.round(late)];
    }
  };
  setInterval(look, 20);
}

/** In the page, before all else: what workers answer comes so many milliseconds late, in order. */
function answerLate(late) {
  const { addEventListener } = Worker.prototype;
  Worker.prototype.addEventListener = function (type, listener, ...options) {
    const later = (event) => setTimeout(() => listener.call(this, event), late);
    addEventListener.call(this, type, type === 'message' ? later : listener, ...options);
  };
}

/** Players as they come, without a setting of ours: what their page is called, and what of a stream they play. */
const PLAIN = { plain: 'index.m3u8', 'plain-dash': 'manifest.mpd' };

/** Where `live/NAME` is played by `via`: a delivery of the watch page's, or one of PLAIN. */
export function addressOf(server, plain, name, via) {
  return via in PLAIN
    ? `${plain.url}${via}?url=${encodeURIComponent(`${server.url}/live/${name}/${PLAIN[via]}`)}`
    : `${server.url}/watch/live/${name}?via=${via}`;
}

/** A page with hls.js or dash.js as they come. */
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

/** In the page: how far fragments are from where their media are, by hls.js itself, in seconds. */
function watchPlacement() {
  window.placed = [];
  const { hls } = window;
  hls.on('hlsFragBuffered', (_event, { frag, part }) => {
    const of = part ?? frag;
    const media = part ? part.elementaryStreams : frag.elementaryStreams;
    for (const kind of ['audio', 'video']) {
      const stream = media?.[kind];
      if (stream)
        window.placed.push({ kind, sn: frag.sn, part: part?.index, off: of.start - stream.startPTS });
    }
  });
}

/**
 * Watches `live/NAME` in a fresh page for `seconds` after its first picture: standings, pictures shown, and pictures
 * decoded by the browser's own count. `via` is `plain` for hls.js without our page, `plain-dash` for dash.js. What the
 * page's workers answer is so many milliseconds `late`, as on a machine that is busy: hls.js parses media in workers.
 */
export async function watchYoung(browser, server, plain, name, via, seconds, late = 0) {
  const { page, complaints } = await openPage(browser);
  try {
    if (late > 0) await page.addInitScript(answerLate, late);
    await page.addInitScript(observe, STANDS);
    await page.goto(addressOf(server, plain, name, via));
    if (via === 'plain') await page.evaluate(watchPlacement);
    await page
      .waitForFunction(() => window.seen.first !== null, undefined, { timeout: 30_000 })
      .catch(() => {
        throw new Error(`${name} by ${via}: no picture within 30 s`);
      });
    const begin = await page.evaluate(() => document.querySelector('video').currentTime);
    await page.waitForTimeout(seconds * 1000);
    const seen = await page.evaluate(() => {
      const video = document.querySelector('video');
      const { totalVideoFrames, droppedVideoFrames } = video.getVideoPlaybackQuality();
      return {
        ...window.seen,
        time: video.currentTime,
        decoded: totalVideoFrames,
        dropped: droppedVideoFrames,
        placed: window.placed ?? [],
      };
    });
    return { ...seen, begin, played: seen.time - begin, seconds, complaints };
  } finally {
    await page.context().close();
  }
}
