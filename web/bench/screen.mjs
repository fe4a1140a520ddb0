// How long a picture takes from its capture to the screen: the pictures of a stream say when they were captured,
// in bars of black and white (scripts/bench-push-screen.py), and are read back from the video element.
//
//   node bench/screen.mjs http://HOST/watch/live/NAME?via=push SECONDS
//
// One JSON document on standard output: latencies in milliseconds, picture by picture, once playing has settled.
import { openPage, startBrowser, stats, untilCondition } from '../e2e/support.mjs';

const [url, seconds] = process.argv.slice(2);
/** Bars of 16 pixels that are the milliseconds since 1970 modulo 2^20, below them their complement. */
const BITS = 20;
const SETTLE = 5_000;

/** In the page: reads every picture that is shown. */
function follow(bits) {
  const video = document.querySelector('video');
  const canvas = new OffscreenCanvas(16 * bits, 32);
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const read = { pictures: [], unreadable: 0 };
  window.pictures = read;
  const light = (data, column, row) => data[(row * canvas.width + column) * 4 + 1] > 127;
  const look = (_now, { expectedDisplayTime, presentedFrames, mediaTime }) => {
    video.requestVideoFrameCallback(look);
    context.drawImage(video, 0, 0, canvas.width, canvas.height, 0, 0, canvas.width, canvas.height);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    let [stamp, sound] = [0, true];
    for (let bit = 0; bit < bits; bit += 1) {
      const [bar, complement] = [light(data, 16 * bit + 8, 8), light(data, 16 * bit + 8, 24)];
      if (bar === complement) sound = false;
      stamp = stamp * 2 + Number(bar);
    }
    if (!sound) {
      read.unreadable += 1;
      return;
    }
    const modulo = 2 ** bits;
    const shown = performance.timeOrigin + expectedDisplayTime;
    read.pictures.push({
      at: shown,
      late: (((shown - stamp) % modulo) + modulo) % modulo,
      presentedFrames,
      mediaTime,
    });
  };
  video.requestVideoFrameCallback(look);
}

const browser = await startBrowser();
try {
  const { page, complaints } = await openPage(browser);
  await page.goto(url);
  await untilCondition(page, 'playing', 30_000);
  await page.waitForTimeout(SETTLE);
  await page.evaluate(follow, BITS);
  await page.waitForTimeout(Number(seconds) * 1000);
  const read = await page.evaluate(() => window.pictures);
  const last = await stats(page);
  console.log(JSON.stringify({ url, version: browser.version(), ...read, stats: last, complaints }));
} finally {
  await browser.close();
}
