// What a page of the player shows while the link to it changes (scripts/bench-push-link-browser.py).
//
//   node bench/link.mjs http://HOST/watch/live/NAME?via=push
//
// Says `playing` on standard output once it plays; then a JSON line four times a second, until standard input
// ends.
import { openPage, startBrowser, stats, untilCondition } from '../e2e/support.mjs';

const [url] = process.argv.slice(2);
const EVERY = 250;

const browser = await startBrowser();
try {
  const { page } = await openPage(browser);
  await page.goto(url);
  await untilCondition(page, 'playing', 30_000);
  const origin = await page.evaluate(() => performance.timeOrigin);
  console.log('playing');
  let over = false;
  process.stdin.resume();
  process.stdin.on('end', () => {
    over = true;
  });
  while (!over) {
    const { height, bitrate, buffer, latency, currentTime, droppedFrames, stallList } = await stats(page);
    const stalls = stallList.map(({ at, seconds }) => ({ at: (origin + at) / 1000, seconds }));
    const seen = { height, bitrate, buffer, latency, currentTime, droppedFrames, stalls };
    console.log(JSON.stringify({ at: Date.now() / 1000, ...seen }));
    await page.waitForTimeout(EVERY);
  }
} finally {
  await browser.close();
}
