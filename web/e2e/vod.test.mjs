import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  assertAccessible,
  keep,
  openPage,
  pauseAt,
  position,
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

function address(name, via) {
  return `${server.url}/watch/vod/${name}${via === 'hls' ? '' : `?via=${via}`}`;
}

/** Number of pages at a time: playing is mostly waiting. */
const AT_ONCE = { concurrency: 3 };

/** Plays a title and closes the page whatever happens. */
function play(description, name, via, body, options) {
  test(description, async (t) => {
    const { page, complaints } = await openPage(browser, options);
    try {
      await page.goto(address(name, via));
      await untilBegun(page);
      await body(page, complaints, t);
    } finally {
      await page.context().close();
    }
  });
}

test('a chosen audio track stays chosen with another delivery', async () => {
  const { page, complaints } = await openPage(browser);
  try {
    await page.goto(address('languages.mp4', 'hls'));
    await untilBegun(page);
    const choice = page.getByRole('combobox', { name: 'Audio' });
    await choice.selectOption('German');
    for (const [name, engine] of [
      ['DASH', /^dash\.js/],
      ['File', /^MediaSource/],
    ]) {
      await page.getByRole('radio', { name }).check();
      await untilEnough(
        () => stats(page),
        (now) => engine.test(now.engine) && now.condition === 'playing',
        name,
      );
      await choice.locator('option:checked', { hasText: 'German' }).waitFor({ state: 'attached' });
      await untilTime(page, (await position(page)) + 1);
    }
    assert.deepEqual(complaints, []);
  } finally {
    await page.context().close();
  }
});

for (const via of ['hls', 'dash', 'push']) {
  test(`what an edit list skips is not played over ${via}`, async (t) => {
    const { page, complaints } = await openPage(browser);
    try {
      // Notes the colour of every shown frame.
      await page.addInitScript(() => {
        window.shown = [];
        window.playing = 1;
        const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
        const look =
          (video) =>
          (_now, { mediaTime }) => {
            canvas.drawImage(video, 0, 0, 1, 1);
            const [red, green] = canvas.getImageData(0, 0, 1, 1).data;
            const { playing } = window;
            window.shown.push({ at: mediaTime, colour: red > green ? 'red' : 'green', playing });
            video.requestVideoFrameCallback(look(video));
          };
        new MutationObserver((_changes, observer) => {
          const video = document.querySelector('video');
          if (!video) return;
          observer.disconnect();
          video.requestVideoFrameCallback(look(video));
        }).observe(document, { childList: true, subtree: true });
      });
      await page.goto(address('edited.mp4', via));
      await untilBegun(page);
      // A page that is late sees fewer of the frames. It plays the title again then.
      await page.waitForFunction(() => {
        const video = document.querySelector('video');
        if (window.shown.length > 30) return video.ended || video.currentTime >= 3;
        if (video.ended && window.playing === 3) return true;
        if (video.ended) {
          window.playing += 1;
          video.currentTime = 0;
          video.play();
        }
        return false;
      });
      const { shown, duration } = await page.evaluate(() => ({
        shown: window.shown,
        duration: document.querySelector('video').duration,
      }));
      t.diagnostic(JSON.stringify(shown.slice(0, 5)));
      assert.ok(Math.abs(duration - 7) < 0.2, `duration ${duration}`);
      assert.ok(shown.length > 30, `${shown.length} pictures`);
      // Before playback starts, a browser may paint one of the first frames. The 25 skipped frames
      // last a hundredth of a second together.
      const red = shown.filter(({ colour }) => colour === 'red');
      const first = Math.min(...shown.map(({ at }) => at));
      const early = ({ at }) => at - first < 0.01;
      // A busy browser may paint the same frame twice.
      for (const playing of [1, 2, 3]) {
        const frames = new Set(red.filter((one) => one.playing === playing).map(({ at }) => at));
        assert.ok(frames.size <= 2, JSON.stringify(red));
      }
      assert.ok(red.every(early), JSON.stringify(red));
      assert.deepEqual(complaints, []);
    } finally {
      await page.context().close();
    }
  });
}

for (const via of ['hls', 'dash']) {
  describe(`titles over ${via.toUpperCase()}`, AT_ONCE, () => {
    for (const [name, duration] of [
      ['first.mp4', 120.2],
      ['last.mp4', 52.2],
      ['fragmented.mp4', 15.6],
      ['folder', 60],
    ]) {
      play(`play ${name}, jump, and end`, name, via, async (page, complaints, t) => {
        const { moments, engine, duration: told } = await stats(page);
        t.diagnostic(`first frame after ${Math.round(moments.firstFrame)} ms; ${engine}`);
        assert.ok(Math.abs(told - duration) < 0.3, `duration ${told}`);
        await pauseAt(page, 1.5);
        await page.getByRole('slider', { name: 'Position' }).focus();
        const before = await position(page);
        await page.keyboard.press('ArrowRight');
        const stepped = (await position(page)) - before;
        assert.ok(Math.abs(stepped - 5) < 0.2, `a key steps 5 s: ${stepped}`);
        await page.getByRole('button', { name: 'Play', exact: true }).click();
        await untilTime(page, before + 5.5);

        await seek(page, duration - 2);
        await untilCondition(page, 'ended');
        const last = await stats(page);
        assert.ok(Math.abs(last.currentTime - duration) < 0.3, `ended at ${last.currentTime}`);
        assert.equal(last.latency, null);
        assert.ok(last.bitrate > 0 && last.width > 0);
        assert.deepEqual(complaints, []);
      });
    }

    // On a busy page dash.js sees the end before the browser reports it. The watch page ends the
    // title then. Otherwise dash.js would seek to the end for ever.
    play('end once on a page that is busy', 'first.mp4', via, async (page, complaints) => {
      const seeks = await page.evaluate(async () => {
        const video = document.querySelector('video');
        const event = (type) =>
          new Promise((happened) => video.addEventListener(type, happened, { once: true }));
        const pass = (ms) => new Promise((passed) => setTimeout(passed, ms));
        video.currentTime = video.duration - 2;
        await event('seeked');
        while (video.currentTime < video.duration - 0.2) await pass(5);
        const busyUntil = performance.now() + 500;
        while (performance.now() < busyUntil);
        let seeks = 0;
        video.addEventListener('seeking', () => seeks++);
        await pass(1500);
        return seeks;
      });
      await untilCondition(page, 'ended');
      assert.equal(seeks, 0);
      assert.deepEqual(complaints, []);
    });

    play('offer the audio tracks', 'languages.mp4', via, async (page, complaints) => {
      await untilTime(page, 1);
      const choice = page.getByRole('combobox', { name: 'Audio' });
      assert.deepEqual((await choice.locator('option').allTextContents()).sort(), ['English', 'German']);
      await choice.selectOption('German');
      const changed = await position(page);
      await untilTime(page, changed + 2);
      assert.equal(await choice.locator('option:checked').textContent(), 'German');
      assert.deepEqual(complaints, []);
    });

    play('show the subtitles beside a file', 'first.mp4', via, async (page, complaints) => {
      await untilTime(page, 1);
      const choice = page.getByRole('combobox', { name: 'Subtitles' });
      assert.deepEqual(await choice.locator('option').allTextContents(), ['Off', 'English']);
      assert.equal(await choice.locator('option:checked').textContent(), 'Off');
      await choice.selectOption('English');
      await page.waitForFunction(() =>
        [...document.querySelector('video').textTracks].some(
          ({ mode, activeCues }) =>
            mode === 'showing' &&
            [...(activeCues ?? [])].some(({ text }) => text.includes('subtitle of the test')),
        ),
      );
      await assertAccessible(page);
      await keep(page, `vod-${via}`);
      await choice.selectOption('Off');
      await page.waitForFunction(() =>
        [...document.querySelector('video').textTracks].every(({ mode }) => mode !== 'showing'),
      );
      assert.deepEqual(complaints, []);
    });

    test('say why a cut off file is refused', async () => {
      const { page } = await openPage(browser);
      await page.goto(address('cut.mp4', via));
      await page
        .locator('.message')
        .getByText(/^The server cannot make the \w+ of this file \(422\)\.$/)
        .waitFor();
      await page
        .locator('.message')
        .getByText(/^The server says: cut\.mp4: .*cut off/)
        .waitFor();
      await assertAccessible(page);
      await keep(page, `vod-${via}-cut`);
      await page.context().close();
    });

    test('say that there is no such file', async () => {
      const { page } = await openPage(browser);
      await page.goto(address('missing.mp4', via));
      await page.locator('.message').getByText('is not on the server (404)').waitFor();
      await page.context().close();
    });
  });
}

describe('a title', AT_ONCE, () => {
  play(
    'goes on where it was when another delivery is chosen',
    'last.mp4',
    'hls',
    async (page, complaints, t) => {
      await seek(page, 20);
      await untilTime(page, 21);
      // The page notes where it is when it hears of the choice, before it starts another engine, and
      // which frames of another source it shows from then on. The browser's own account of what it
      // has played is no witness: on a busy machine Chromium counts the media before the first frame.
      await page.evaluate(() => {
        const video = document.querySelector('video');
        let [before, painted, dark] = ['', 0, 0];
        const note = () => {
          [window.left, window.shown, before] = [video.currentTime, [], video.currentSrc];
          [painted, dark] = [performance.now(), 0];
        };
        // For how long nothing was painted, in seconds. The time for which the page was not run is part of it.
        const paint = () => {
          const now = performance.now();
          if (now - painted > 300) dark += (now - painted) / 1000;
          painted = now;
        };
        const paints = () => {
          paint();
          requestAnimationFrame(paints);
        };
        paints();
        document.addEventListener('change', note, { capture: true });
        const frame = (_now, { mediaTime }) => {
          if (video.currentSrc !== before && video.readyState > 1) {
            // The browser does not tell of frames that it would have painted then.
            if (window.shown?.length === 0) {
              paint();
              window.dark = dark;
            }
            window.shown?.push(mediaTime);
          }
          video.requestVideoFrameCallback(frame);
        };
        video.requestVideoFrameCallback(frame);
      });
      for (const label of ['DASH', 'File', 'HLS']) {
        await page.getByRole('radio', { name: label }).check();
        await page.waitForFunction((wanted) => {
          const { via, condition } = window.headwater.stats();
          return via === wanted && condition === 'playing' && window.shown.at(-1) >= window.left + 1;
        }, label.toLowerCase());
        const [left, [began, ...rest], lost] = await page.evaluate(() => [
          window.left,
          window.shown,
          window.dark,
        ]);
        const course = `${label}: from ${left} to ${began}, nothing painted for ${lost} s`;
        t.diagnostic(course);
        assert.ok(Math.abs(began - left) < 0.5 + lost, course);
        for (const at of rest) assert.ok(at >= began, `${label}: from ${left} to ${began}, then ${at}`);
      }
      assert.deepEqual(complaints, []);
    },
  );

  play(
    'goes on where it was when a third delivery is chosen before the second has begun',
    'last.mp4',
    'hls',
    async (page) => {
      await seek(page, 20);
      await untilTime(page, 21);
      await page.route('**/manifest.mpd', () => {});
      const asked = page.waitForRequest('**/manifest.mpd');
      await page.getByRole('radio', { name: 'DASH' }).check();
      await asked;
      await page.getByRole('radio', { name: 'File' }).check();
      await untilBegun(page);
      const at = await position(page);
      assert.ok(at > 20, `at ${at} s`);
      await page.unrouteAll({ behavior: 'ignoreErrors' });
    },
  );

  play(
    'fits 320 pixels, dark',
    'languages.mp4',
    'hls',
    async (page) => {
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);
      assert.equal(await page.getByText('Behind live').count(), 0);
      await assertAccessible(page);
      await keep(page, 'vod-narrow-dark');
    },
    { viewport: { width: 320, height: 640 }, colorScheme: 'dark' },
  );

  play(
    'says that the server is out of reach, and goes on when it is back',
    'first.mp4',
    'hls',
    async (page) => {
      await untilTime(page, 1);
      await page.context().setOffline(true);
      await seek(page, 100);
      await page.getByRole('heading', { name: 'The server cannot be reached' }).waitFor();
      await page.context().setOffline(false);
      await untilTime(page, 100.5);
    },
  );
});
