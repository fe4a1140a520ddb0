import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { pageTests, startEmbed, startProxy } from './push.mjs';
import { longStandings, standingsOf } from './standings.mjs';
import {
  assertAccessible,
  keep,
  playAgain,
  playOn,
  position,
  startBrowser,
  startServer,
  stats,
  untilCondition,
  untilPlayed,
  untilTime,
} from './support.mjs';
import { makeTitles } from './titles.mjs';

let titles;
let files;
let browser;
let embed;

before(async () => {
  titles = await makeTitles();
  files = await startServer({ vod: titles.root });
  browser = await startBrowser();
  embed = await startEmbed(files.url);
});

after(async () => {
  await browser?.close();
  embed?.close();
  await files?.stop();
  await titles?.remove();
});

const withPage = pageTests(() => browser);
const quality = (page) => page.getByRole('combobox', { name: 'Quality' });

describe('titles by push', { concurrency: 3 }, () => {
  const open = (page, name) => page.goto(`${files.url}/watch/vod/${name}?via=push`);
  /** Seeks, and notes where the picture is first and when it has played half a second from there. */
  const seek = (page, time) =>
    page.evaluate((to) => {
      const video = document.querySelector('video');
      const reached = { first: null, beyond: false };
      window.reached = reached;
      video.currentTime = to;
      // A busy machine may have come to the end of a short title meanwhile, which pauses it.
      if (video.paused) video.play();
      const timer = setInterval(() => {
        if (video.seeking) return;
        reached.first ??= video.currentTime;
        if (video.currentTime < to + 0.5) return;
        reached.beyond = true;
        clearInterval(timer);
      }, 20);
    }, time);

  for (const [name, duration] of [
    ['first.mp4', 120.2],
    ['last.mp4', 52.2],
    ['fragmented.mp4', 15.6],
    ['folder', 60],
  ]) {
    withPage(`play ${name}, jump, and end`, async (page, complaints, t) => {
      await open(page, name);
      await untilCondition(page, 'playing');
      const { moments, duration: told, latency } = await stats(page);
      t.diagnostic(`first frame after ${Math.round(moments.firstFrame)} ms`);
      assert.ok(Math.abs(told - duration) < 0.3, `duration ${told}`);
      assert.equal(latency, null);
      await untilTime(page, 1.5);
      for (const time of [duration / 2, duration / 4, duration - 2.5]) {
        await seek(page, time);
        await page.waitForFunction(() => window.reached.beyond);
        const { first } = await page.evaluate(() => window.reached);
        assert.ok(first > time - 0.1 && first < time + 1, `sought ${time}, is at ${first}`);
      }
      await untilCondition(page, 'ended');
      assert.ok(Math.abs((await position(page)) - duration) < 0.3, `ended at ${await position(page)}`);
      await playAgain(page);
      assert.deepEqual(complaints, []);
    });
  }

  withPage('are played from any place, however often that changes', async (page) => {
    await embed.play(page, '/vod/first.mp4/push?pace=fast', {}, { seek: 20 });
    await untilPlayed(page, 20, 20.5);
    assert.ok((await page.evaluate(() => document.querySelector('video').played.start(0))) > 19.9);
    // The player is so far ahead that it tells the server to pause.
    await page.waitForFunction(() => {
      const [before, now] = window.heard.filter(([name]) => name === 'stats').slice(-2);
      return now?.[1].buffer > 50 && now[1].messages === before[1].messages;
    });
    await seek(page, 110);
    await untilPlayed(page, 110, 110.5);
    // As if a slider was dragged.
    const last = await page.evaluate(async () => {
      const video = document.querySelector('video');
      for (let at = 0; at < 150; at++) {
        // No place comes twice.
        video.currentTime = 5 + ((at * 37) % 151) * 0.7;
        await new Promise((resolve) => setTimeout(resolve, 16));
      }
      return video.currentTime;
    });
    await untilPlayed(page, last, last + 0.5);
    const heard = await page.evaluate(() => window.heard);
    assert.deepEqual(
      heard.filter(([name]) => name === 'reconnecting' || name === 'error'),
      [],
    );
  });

  withPage('choose a rendition of a folder', async (page, complaints) => {
    await open(page, 'folder');
    await untilCondition(page, 'playing');
    await quality(page).selectOption({ index: 2 });
    // The seek goes beyond the buffer of the other rendition.
    await seek(page, 50);
    await page.waitForFunction(() => document.querySelector('video').videoWidth === 212);
    await assertAccessible(page);
    await keep(page, 'vod-push');
    assert.deepEqual(complaints, []);
  });

  withPage('say why a cut off file is refused', async (page) => {
    await open(page, 'cut.mp4');
    await page.locator('.message').getByText('The server refuses to push the stream.').waitFor();
    await page
      .locator('.message')
      .getByText(/^The server says: cut\.mp4: .*cut off/)
      .waitFor();
  });

  withPage('go on where the connection was lost', async (page) => {
    const proxy = await startProxy(files.url);
    try {
      await page.goto(`${proxy.url}/watch/vod/first.mp4?via=push`);
      await untilCondition(page, 'playing');
      await page.waitForFunction(() => window.headwater.stats().buffer > 5);
      await proxy.drop();
      // Less than it has in its buffer.
      await playOn(page, 2);
      await proxy.restore();
      const { buffer, currentTime } = await stats(page);
      await seek(page, currentTime + Math.max(0, buffer - 4));
      await untilTime(page, currentTime + buffer + 1);
      assert.deepEqual(longStandings(await standingsOf(page)), []);
    } finally {
      await proxy.stop();
    }
  });
});
