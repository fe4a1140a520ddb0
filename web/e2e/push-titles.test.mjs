import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { startProxy } from './proxy.mjs';
import { pageTests, startEmbed } from './push.mjs';
import { longStandings, standingsOf } from './standings.mjs';
import {
  assertAccessible,
  keep,
  PATIENCE,
  playAgain,
  position,
  seek,
  startBrowser,
  startServer,
  stats,
  untilBegun,
  untilCondition,
  untilPlayed,
  untilTime,
  within,
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
  /**
   * Seeks while the title plays. The picture stands still there until it is shown, and then plays on.
   * Returns where it stood.
   */
  const seekAndStand = async (page, time) => {
    const stood = page.evaluate(async (to) => {
      const video = document.querySelector('video');
      const seeked = new Promise((shown) => video.addEventListener('seeked', shown, { once: true }));
      video.currentTime = to;
      video.pause();
      // The page plays again as soon as it can, which may be before this script hears `seeked`.
      video.play = async () => undefined;
      await seeked;
      const { currentTime } = video;
      delete video.play;
      await video.play();
      return currentTime;
    }, time);
    return within(PATIENCE, stood, `picture at ${time} s`);
  };

  for (const [name, duration] of [
    ['first.mp4', 120.2],
    ['last.mp4', 52.2],
    ['fragmented.mp4', 15.6],
    ['folder', 60],
  ]) {
    withPage(`play ${name}, jump, and end`, async (page, complaints, t) => {
      await open(page, name);
      await untilBegun(page);
      const { moments, duration: told, latency } = await stats(page);
      t.diagnostic(`first frame after ${Math.round(moments.firstFrame)} ms`);
      assert.ok(Math.abs(told - duration) < 0.3, `duration ${told}`);
      assert.equal(latency, null);
      await untilTime(page, 1.5);
      for (const time of [duration / 2, duration / 4, duration - 2.5]) {
        const stood = await seekAndStand(page, time);
        assert.ok(Math.abs(stood - time) < 0.1, `sought ${time}, is at ${stood}`);
        await untilPlayed(page, time, time + 0.5);
      }
      await untilCondition(page, 'ended');
      assert.ok(Math.abs((await position(page)) - duration) < 0.3, `ended at ${await position(page)}`);
      await playAgain(page);
      assert.deepEqual(complaints, []);
    });
  }

  withPage('lose nothing where the browser does not decode what the server chooses', async (page) => {
    await embed.play(page, '/vod/codecs/push');
    await untilPlayed(page, 0.2, 8);
    const { played, names } = await page.evaluate(() => ({
      played: document.querySelector('video').played.start(0),
      names: window.heard.filter(([name]) => name === 'rendition').map(([, event]) => event.codecs),
    }));
    assert.ok(played < 0.1, `begins at ${played} s`);
    assert.ok(
      names.every((codecs) => codecs.startsWith('avc1')),
      names.join(),
    );
  });

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
      if (video.paused) video.play();
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
    await untilBegun(page);
    await quality(page).selectOption({ index: 2 });
    // The seek goes beyond the buffer of the other rendition.
    await seek(page, 50);
    // Its pixels are not quite square, so its width on the screen is not that of its frames.
    await page.waitForFunction(() => document.querySelector('video').videoHeight === 120);
    assert.equal(await page.evaluate(() => document.querySelector('video').videoWidth), 213);
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
      await untilBegun(page);
      await page.waitForFunction(() => window.headwater.stats().buffer > 5);
      // The player connects again after a quarter of a second, and each time after twice as long, or after half of that
      // (src/push/retry.ts). So a connection succeeds before 4 s have passed.
      await proxy.cut(1_800);
      // The player has 5 s of media, or less, until it must have those of the new connection.
      const [from, end] = await page.evaluate(() => {
        const video = document.querySelector('video');
        const end = video.buffered.end(video.buffered.length - 1);
        video.currentTime = Math.max(video.currentTime, end - 5);
        return [video.currentTime, end];
      });
      await untilPlayed(page, from, end + 1);
      assert.deepEqual(longStandings(await standingsOf(page)), []);
    } finally {
      await proxy.stop();
    }
  });
});
