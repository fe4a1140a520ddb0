import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { longStandings, standingsOf } from './standings.mjs';
import {
  assertAccessible,
  keep,
  openPage,
  pauseAt,
  playAgain,
  playBetween,
  seek,
  startBrowser,
  startServer,
  stats,
  untilBegun,
  untilCondition,
  untilEnough,
  untilTime,
} from './support.mjs';
import { makeTitles } from './titles.mjs';

/**
 * `AHEAD` of src/watch/file/feeder.ts, and one segment more: the one that the last request was for.
 */
const MOST_AHEAD = 15 + 1.2;
/** 1 MiB */
const LONGEST_RANGE = 1_048_576;

let titles;
let server;
let browser;

before(async () => {
  titles = await makeTitles();
  server = await startServer({ vod: titles.root });
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await server?.stop();
  await titles?.remove();
});

/** Opens a title in file mode. `ranges` has the requests for it so far, as `[start, end]`. */
async function open(name, options) {
  const opened = await openPage(browser, options);
  const { page } = opened;
  const ranges = [];
  page.on('request', (request) => {
    if (!request.url().endsWith(`/vod/${name}`)) return;
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers().range ?? '');
    ranges.push(range ? [Number(range[1]), Number(range[2]) + 1] : null);
  });
  return { ...opened, ranges, url: `${server.url}/watch/vod/${name}?via=file` };
}

/** Opens and plays a title in file mode. */
function play(name, description, body, options) {
  test(description, async (t) => {
    const opened = await open(name, options);
    const { page } = opened;
    try {
      await page.goto(opened.url);
      await untilBegun(page);
      await body(opened, t);
    } finally {
      await page.context().close();
    }
  });
}

const video = (page, property) => page.evaluate((name) => document.querySelector('video')[name], property);
const slider = (page) => page.getByRole('slider', { name: 'Position' });
const buffered = (page) =>
  page.evaluate(() => {
    const { buffered, currentTime } = document.querySelector('video');
    return {
      ranges: buffered.length,
      behind: buffered.length ? currentTime - buffered.start(0) : 0,
      ahead: buffered.length ? buffered.end(buffered.length - 1) - currentTime : 0,
    };
  });

// Three pages run at a time: playing is mostly waiting.
describe('file mode', { concurrency: 3 }, () => {
  for (const [name, duration] of [
    ['first.mp4', 120.2],
    ['last.mp4', 52.2],
    ['fragmented.mp4', 15.6],
  ]) {
    play(name, `plays ${name}, jumps, and ends`, async ({ page, complaints, ranges }, t) => {
      const { moments, engine, duration: told } = await stats(page);
      t.diagnostic(`first frame after ${Math.round(moments.firstFrame)} ms; ${engine}`);
      assert.ok(Math.abs(told - duration) < 0.2, `duration ${told}`);
      // The page has asked ahead of where it was when it paused.
      const reached = await pauseAt(page, 2);
      const { ahead } = await buffered(page);
      assert.ok(ahead <= MOST_AHEAD + (reached - 2), `${ahead} s ahead, paused at ${reached} s`);

      await slider(page).focus();
      const before = await video(page, 'currentTime');
      await page.keyboard.press('ArrowRight');
      const stepped = (await video(page, 'currentTime')) - before;
      assert.ok(Math.abs(stepped - 5) < 0.2, `a key steps 5 s: ${stepped}`);
      await page.getByRole('button', { name: 'Play', exact: true }).click();
      await untilTime(page, before + 6);

      await seek(page, duration / 2);
      await untilTime(page, duration / 2 + 1);
      await seek(page, duration - 2);
      await untilCondition(page, 'ended');
      assert.equal(await video(page, 'ended'), true);
      const last = await stats(page);
      assert.ok(Math.abs(last.currentTime - duration) < 0.2, `ended at ${last.currentTime}`);
      t.diagnostic(`${last.droppedFrames} of ${last.decodedFrames} frames dropped`);
      assert.ok(
        ranges.every((range) => range && range[1] - range[0] <= LONGEST_RANGE),
        'only ranges of at most 1 MiB',
      );

      await playAgain(page);
      assert.deepEqual(complaints, []);
    });
  }

  play('first.mp4', 'asks for no more than 15 s ahead', async ({ page, ranges, complaints }) => {
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.waitForFunction(() => window.headwater.stats().buffer > 14);
    // Nothing is asked for while enough is buffered.
    const counts = [];
    const isSame = () => counts.at(-1) === counts.at(-2);
    await untilEnough(() => counts.push(ranges.length) && counts, isSame, 'it asks on and on', 2_500);
    const { ahead } = await buffered(page);
    assert.ok(ahead <= MOST_AHEAD && ahead > 14, `${ahead} s ahead`);
    const bytes = ranges.reduce((sum, [start, end]) => sum + end - start, 0);
    // Of 9 MB. The media have 76 kB a second. The index and what the seconds differ by are less than
    // 200 kB together. A busy machine may have played a while before the test could pause it.
    const reached = await video(page, 'currentTime');
    const most = 200_000 + 76_000 * (reached + MOST_AHEAD) + LONGEST_RANGE;
    assert.ok(bytes < most, `${bytes} bytes for ${reached} s, at most ${most}`);
    await assertAccessible(page);
    await keep(page, 'file');
    assert.deepEqual(complaints, []);
  });

  play('first.mp4', 'stays paused where a media key paused it', async ({ page, complaints }) => {
    // A media key pauses the element itself. Where the page jumps, it has no media yet.
    const states = await page.evaluate(async () => {
      const video = document.querySelector('video');
      const come = (name) => new Promise((resolve) => video.addEventListener(name, resolve, { once: true }));
      const paused = come('pause');
      video.pause();
      // This event may come first.
      video.dispatchEvent(new Event('canplay'));
      const stays = video.paused;
      await paused;
      const played = come('canplay').then(() => video.paused);
      video.currentTime += 60;
      return [stays, video.readyState < HTMLMediaElement.HAVE_FUTURE_DATA, await played];
    });
    assert.deepEqual(states, [true, true, true]);
    await page.getByRole('button', { name: 'Play', exact: true }).click();
    await untilTime(page, (await video(page, 'currentTime')) + 1);
    assert.deepEqual(complaints, []);
  });

  play('first.mp4', 'forgets what was seen', async ({ page, complaints }) => {
    // The picture moves on by 8 s in each second until the next segment comes, so this waits. The page itself begins to
    // look: the title does not last long.
    await page.waitForFunction(() => {
      const video = document.querySelector('video');
      video.playbackRate = 8;
      const { buffered, currentTime } = video;
      return currentTime >= 60 && buffered.length === 1 && currentTime - buffered.start(0) < 22;
    });
    const { ahead } = await buffered(page);
    assert.ok(ahead <= MOST_AHEAD, `${ahead} s ahead`);
    assert.deepEqual(complaints, []);
  });

  test('plays on where the browser has room for 6 s only', async () => {
    const { page, url, complaints } = await open('first.mp4');
    await page.addInitScript(() => {
      const append = SourceBuffer.prototype.appendBuffer;
      window.refused = 0;
      SourceBuffer.prototype.appendBuffer = function (bytes) {
        const { buffered } = this;
        if (buffered.length > 0 && buffered.end(buffered.length - 1) - buffered.start(0) > 6) {
          window.refused += 1;
          throw new DOMException('full', 'QuotaExceededError');
        }
        return append.call(this, bytes);
      };
    });
    await page.goto(url);
    await untilBegun(page);
    await untilTime(page, 10);
    assert.ok((await page.evaluate(() => window.refused)) > 0);
    assert.deepEqual(longStandings(await standingsOf(page)), []);
    assert.deepEqual(complaints, []);
    await page.context().close();
  });

  play('languages.mp4', 'plays another audio track', async ({ page, complaints }) => {
    await untilTime(page, 1);
    const choice = page.getByRole('combobox', { name: 'Audio' });
    assert.deepEqual(await choice.locator('option').allTextContents(), ['English', 'German']);
    await choice.selectOption('German');
    const changed = await video(page, 'currentTime');
    await untilTime(page, changed + 2);
    assert.equal(await choice.locator('option:checked').textContent(), 'German');
    await assertAccessible(page);
    await keep(page, 'file-languages');
    assert.deepEqual(complaints, []);
  });

  test('changes the audio track while the browser takes media', async () => {
    const { page, url, complaints } = await open('languages.mp4');
    // The choice comes right after an append, before the browser has taken the bytes.
    await page.addInitScript(() => {
      const append = SourceBuffer.prototype.appendBuffer;
      SourceBuffer.prototype.appendBuffer = function (bytes) {
        append.call(this, bytes);
        const options = [...document.querySelectorAll('option')];
        const german = options.find(({ textContent }) => textContent === 'German');
        if (window.chosenAt !== undefined || !german) return;
        window.chosenAt = document.querySelector('video').currentTime;
        german.parentElement.value = german.value;
        german.parentElement.dispatchEvent(new Event('change', { bubbles: true }));
      };
    });
    await page.goto(url);
    await page.waitForFunction(() => document.querySelector('video')?.currentTime >= window.chosenAt + 2);
    const choice = page.getByRole('combobox', { name: 'Audio' });
    assert.equal(await choice.locator('option:checked').textContent(), 'German');
    assert.deepEqual(complaints, []);
    await page.context().close();
  });

  play('last.mp4', 'survives an outage of the network shorter than its buffer', async ({ page }) => {
    await page.waitForFunction(() => window.headwater.stats().buffer > 12);
    const offline = (is) => () => page.context().setOffline(is);
    await playBetween(page, offline(true), 7, offline(false));
    const now = await video(page, 'currentTime');
    await untilTime(page, now + 8);
    assert.deepEqual(longStandings(await standingsOf(page)), []);
  });

  test('ends the request that a jump makes useless', async () => {
    const { page, url } = await open('last.mp4');
    // Requests for the middle of the file never end.
    await page.route('**/vod/last.mp4', async (route) => {
      const [, start] = /^bytes=(\d+)-/.exec(route.request().headers().range ?? '') ?? [];
      if (Number(start) > 3_000_000 && Number(start) < 7_000_000) return;
      await route.continue();
    });
    await page.goto(url);
    await untilBegun(page);
    const ended = page.waitForEvent('requestfailed');
    const asked = page.waitForRequest((request) => /^bytes=[3-6]\d{6}-/.test(request.headers().range ?? ''));
    await seek(page, 30);
    await asked;
    await seek(page, 5);
    await ended;
    await untilTime(page, 6);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.context().close();
  });

  test('plays a file as far as it goes, and says that it is cut off', async () => {
    const { page, url } = await open('short.mp4');
    await page.goto(url);
    // Either may come first, and a busy machine may see the page only after both.
    await page.waitForFunction(() => window.seen.played > 3);
    await page.getByText('The file is cut off: its index names bytes beyond its end.').first().waitFor();
    await page.context().close();
  });

  for (const [name, sentence] of [
    ['cut.mp4', 'The file has no index (moov box)'],
    ['text.mp4', 'This is not an MP4 file.'],
    ['hevc.mp4', 'The file is in HEVC, which this browser does not decode'],
    ['missing.mp4', 'The file is not on the server (404).'],
  ]) {
    test(`says why ${name} does not play`, async () => {
      const { page, url } = await open(name);
      await page.goto(url);
      await page.locator('.message').getByText(sentence).waitFor();
      await assertAccessible(page);
      await keep(page, `file-${name}`);
      await page.context().close();
    });
  }
});
