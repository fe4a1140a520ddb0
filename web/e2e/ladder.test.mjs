import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { keep, openPage, startBrowser, startServer, untilLive } from './support.mjs';
import { AUDIO, makeVariants, publishFile, VIDEO } from './young.mjs';

/**
 * Renditions that the server makes of live/small, which is 320×180. They are so small that a busy
 * machine makes them in time, too: a ladder that is late leaves holes.
 */
const CONFIG = `
[ladder]
enabled = true
streams = ["small"]
preset = "ultrafast"
nice = 0
rungs = [
    { name = "low", width = 96, height = 54, bitrate = "30kbit/s" },
    { name = "mid", width = 192, height = 108, bitrate = "100kbit/s" },
]
`;
const WIDTHS = [96, 192, 320];

let server;
let browser;
let made;
let publisher;

before(async () => {
  server = await startServer({ config: CONFIG });
  browser = await startBrowser();
  made = await makeVariants({ small: [...VIDEO, ...AUDIO, '-g', '30'] }, '20');
  publisher = await publishFile(server, made.files.small, 'small', ['-stream_loop', '-1']);
  const rates = (tracks) => tracks.filter(({ kind, bitrate }) => kind === 'video' && bitrate > 0);
  await untilLive(server.url, 'live/small', ({ tracks }) => rates(tracks).length === WIDTHS.length);
});

after(async () => {
  await publisher?.stop();
  await browser?.close();
  await server?.stop();
  await made?.remove();
});

/**
 * Plays `url` in the page with hls.js alone. `window.played` has the errors of hls.js, the widths
 * of the video, and the number of waits.
 */
async function play(page, url) {
  await page.setContent('<video muted autoplay></video>');
  await page.addScriptTag({ path: createRequire(import.meta.url).resolve('hls.js/dist/hls.min.js') });
  await page.evaluate((source) => {
    const video = document.querySelector('video');
    // Whole segments only: hls.js then goes on with the next segment of another rendition just as
    // with the next one of the same.
    const hls = new window.Hls({ lowLatencyMode: false, maxBufferLength: 6 });
    window.hls = hls;
    window.played = { errors: [], widths: [], waits: 0 };
    hls.on(window.Hls.Events.ERROR, (_event, { details, fatal, reason }) => {
      window.played.errors.push(`${details} ${reason ?? ''} ${fatal ? 'fatal' : ''}`);
    });
    video.addEventListener('resize', () => window.played.widths.push(video.videoWidth));
    video.addEventListener('playing', () => video.addEventListener('waiting', () => window.played.waits++), {
      once: true,
    });
    hls.loadSource(source);
    hls.attachMedia(video);
  }, url);
}

test('hls.js goes from rendition to rendition without a gap', async (t) => {
  const { page, complaints } = await openPage(browser);
  await play(page, `${server.url}/live/small/index.m3u8`);
  await page.waitForFunction(() => document.querySelector('video').currentTime > 0);
  const widths = await page.evaluate(() => window.hls.levels.map(({ width }) => width));
  assert.deepEqual(
    [...widths].sort((a, b) => a - b),
    WIDTHS,
  );

  for (const width of [96, 320, 192]) {
    await page.evaluate((level) => {
      window.hls.loadLevel = level;
    }, widths.indexOf(width));
    await page.waitForFunction((wanted) => document.querySelector('video').videoWidth === wanted, width);
    const ranges = await page.evaluate(() => {
      const { buffered } = document.querySelector('video');
      return Array.from({ length: buffered.length }, (_, i) => [buffered.start(i), buffered.end(i)]);
    });
    assert.equal(ranges.length, 1, `one run of media, at ${width}: ${JSON.stringify(ranges)}`);
  }
  const { errors, widths: shown, waits } = await page.evaluate(() => window.played);
  t.diagnostic(`shown ${shown.join(', ')} wide; ${waits} waits; ${errors.join('; ') || 'no errors'}`);
  // Stalls of the buffer come from a busy machine, not from the media. hls.js aborts a request for
  // the rendition that this test makes it leave.
  assert.deepEqual(
    errors.filter((error) => !/^(bufferStalledError|aborted)/.test(error) || /fatal/.test(error)),
    [],
  );
  await keep(page, 'ladder');
  assert.deepEqual(complaints, []);
  await page.context().close();
});
