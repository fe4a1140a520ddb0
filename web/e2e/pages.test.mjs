import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { longStandings, standingsOf } from './standings.mjs';
import {
  assertAccessible,
  fakeStreams,
  keep,
  openPage,
  position,
  startBrowser,
  startServer,
  stats,
  untilCondition,
  untilEnough,
  untilTime,
} from './support.mjs';
import { AUDIO, makeVariants, publishFile, VIDEO } from './young.mjs';

let server;
let browser;

before(async () => {
  server = await startServer();
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** So many pages run at a time: they mostly wait. */
const AT_ONCE = { concurrency: 3 };

/** Runs `body` with a page and closes it, whatever happens. */
function withPage(name, options, body) {
  test(name, async (t) => {
    const { page, complaints } = await openPage(browser, options);
    try {
      await body(page, complaints, t);
    } finally {
      await page.unrouteAll({ behavior: 'ignoreErrors' });
      await page.context().close();
    }
  });
}

const demo = (streams) => streams.find(({ name }) => name === 'live/demo');

describe('dashboard', AT_ONCE, () => {
  withPage('shows the stream and keeps the focus while it counts', {}, async (page, complaints) => {
    await page.goto(`${server.url}/`);
    const card = page.getByRole('article', { name: 'live/demo' });
    const link = card.getByRole('link', { name: 'Watch live/demo' });
    await link.focus();
    const uptime = card.getByTestId('uptime');
    const before = await uptime.textContent();
    // The uptime runs.
    await page.waitForFunction(
      (before) => document.querySelector('[data-testid=uptime]').textContent !== before,
      before,
    );
    assert.ok(await link.evaluate((element) => element === document.activeElement), 'the focus stays');
    assert.ok(await card.getByText('Live', { exact: true }).isVisible());
    assert.match(await card.getByRole('table').textContent(), /v0.*\d+\s×\s\d+.*bit\/s/);
    assert.match(await page.getByTestId('summary').textContent(), /^1 live stream, \d+ viewers?$/);
    // Without a cluster there is no page of nodes.
    assert.equal(await page.getByRole('link', { name: 'Nodes' }).count(), 0);
    await assertAccessible(page);
    await keep(page, 'dashboard');
    await link.press('Enter');
    await page.waitForURL('**/watch/live/demo');
    assert.deepEqual(complaints, []);
  });

  withPage(
    'fits 320 pixels, dark',
    { viewport: { width: 320, height: 640 }, colorScheme: 'dark' },
    async (page) => {
      await page.goto(`${server.url}/`);
      await page.getByRole('article', { name: 'live/demo' }).waitFor();
      await page.getByText('How to publish').click();
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);
      await assertAccessible(page);
      await keep(page, 'dashboard-narrow-dark');
    },
  );

  withPage('tells how to publish when nothing is live', {}, async (page) => {
    await fakeStreams(page, () => []);
    await page.goto(`${server.url}/`);
    await page.getByRole('heading', { name: 'Nothing is live yet' }).waitFor();
    assert.ok(await page.getByText(/ffmpeg -re .* rtmp:\/\/127\.0\.0\.1\/live\/NAME/).isVisible());
    await assertAccessible(page);
    await keep(page, 'dashboard-empty');
    // The stream appears by itself and is announced.
    await fakeStreams(page, (streams) => streams);
    await page.getByRole('article', { name: 'live/demo' }).waitFor();
    assert.equal(await page.getByRole('status').textContent(), 'live/demo is live.');
  });

  withPage('says that the server is out of reach, and keeps what it knew', {}, async (page) => {
    await page.goto(`${server.url}/`);
    await page.getByRole('article', { name: 'live/demo' }).waitFor();
    await page.route('**/api/v1/streams', (route) => route.abort());
    await page.getByRole('alert').getByText('The server cannot be reached').waitFor();
    assert.ok(await page.getByRole('article', { name: 'live/demo' }).isVisible());
    await assertAccessible(page);
    await keep(page, 'dashboard-unreachable');
    await page.unroute('**/api/v1/streams');
    await page.getByText('The server cannot be reached').waitFor({ state: 'detached' });
  });
});

describe('watch page', AT_ONCE, () => {
  withPage('is operated by keyboard and named for screen readers', {}, async (page, complaints) => {
    await page.goto(`${server.url}/watch/live/demo`);
    await untilCondition(page, 'playing');
    assert.equal(await page.title(), 'live/demo – headwater');
    const controls = page.getByRole('group', { name: 'Player controls' });
    await controls.getByRole('button', { name: 'Pause' }).waitFor();
    await controls.getByRole('slider', { name: 'Volume' }).waitFor();
    await assertAccessible(page);

    const video = (property) => page.evaluate((name) => document.querySelector('video')[name], property);
    assert.equal(await video('muted'), true);
    await page.keyboard.press('m');
    assert.equal(await video('muted'), false);
    // On a busy machine the page may have begun anew meanwhile. Then it is paused for a moment, and
    // the key starts it.
    await untilCondition(page, 'playing');
    await page.keyboard.press('Space');
    assert.equal(await video('paused'), true);
    await controls.getByRole('button', { name: 'Play' }).waitFor();
    await page.keyboard.press('l');
    await page.waitForFunction(() => !document.querySelector('video').paused);
    await page.keyboard.press('f');
    await page.waitForFunction(() => document.fullscreenElement !== null);
    await keep(page, 'watch-fullscreen');
    await page.keyboard.press('f');
    await page.waitForFunction(() => document.fullscreenElement === null);

    // On a focused button the space bar presses the button, and acts once.
    await controls.getByRole('button', { name: 'Mute', exact: true }).focus();
    await page.keyboard.press('Space');
    assert.equal(await video('muted'), true);
    assert.equal(await video('paused'), false);

    // Arrow keys choose the delivery, and the address shows the choice.
    await page.getByRole('radio', { name: 'LL-HLS' }).focus();
    await page.keyboard.press('ArrowRight');
    await page.waitForURL('**/watch/live/demo?via=hls');
    await untilCondition(page, 'playing');
    await page.keyboard.press('ArrowRight');
    await page.waitForURL('**/watch/live/demo?via=dash');
    await untilCondition(page, 'playing');
    assert.ok(await page.getByRole('radio', { name: 'DASH' }).isChecked());
    assert.equal((await stats(page)).via, 'dash');

    // Single-key shortcuts can be turned off.
    await page.getByText('Keyboard shortcuts').click();
    await page.getByRole('checkbox', { name: 'Shortcuts on' }).uncheck();
    const muted = await video('muted');
    await page.keyboard.press('m');
    assert.equal(await video('muted'), muted);
    assert.deepEqual(complaints, []);
  });

  withPage('plays in a browser from before 2022', {}, async (page, complaints) => {
    await page.addInitScript(() => {
      delete AbortSignal.any;
      delete AbortSignal.timeout;
    });
    await page.goto(`${server.url}/watch/live/demo`);
    await untilCondition(page, 'playing');
    await page.getByRole('radio', { name: 'Push' }).check();
    await page.waitForURL('**/watch/live/demo?via=push');
    await untilCondition(page, 'playing');
    assert.deepEqual(complaints, []);
  });

  withPage('unmutes by the button in the video', {}, async (page) => {
    await page.goto(`${server.url}/watch/live/demo`);
    await untilCondition(page, 'playing');
    await page.locator('.video').getByRole('button', { name: 'Unmute' }).click();
    assert.equal((await stats(page)).muted, false);
    await page.locator('.unmute').waitFor({ state: 'detached' });
  });

  withPage(
    'fits 320 pixels, dark',
    { viewport: { width: 320, height: 640 }, colorScheme: 'dark' },
    async (page) => {
      await page.goto(`${server.url}/watch/live/demo`);
      await untilCondition(page, 'playing');
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);
      await assertAccessible(page);
      await keep(page, 'watch-narrow-dark');
    },
  );

  withPage('waits without complaint for a broadcast that has not begun', {}, async (page, complaints) => {
    await page.goto(`${server.url}/watch/live/not-begun`);
    await page.getByRole('heading', { name: 'The broadcast has not begun yet' }).waitFor();
    await page
      .getByRole('status')
      .getByText(/has not begun yet/)
      .waitFor();
    await page.waitForTimeout(2_500);
    await assertAccessible(page);
    await keep(page, 'watch-not-begun');
    assert.deepEqual(complaints, []);
  });

  withPage('plays by itself when the broadcast begins', {}, async (page, complaints) => {
    await fakeStreams(page, () => []);
    await page.goto(`${server.url}/watch/live/demo`);
    await untilCondition(page, 'not-begun');
    await fakeStreams(page, (streams) => streams);
    await untilCondition(page, 'playing');
    assert.deepEqual(complaints, []);
  });

  withPage('says that the publisher is lost, and that it is back', {}, async (page, complaints) => {
    // This comes first: intercepting requests delays those under way, and so playback.
    await fakeStreams(page, (streams) => streams);
    await page.goto(`${server.url}/watch/live/demo`);
    await untilCondition(page, 'playing');
    await fakeStreams(page, (streams) => [{ ...demo(streams), state: 'offline' }]);
    await page.getByRole('heading', { name: 'The publisher has lost its connection' }).waitFor();
    await keep(page, 'watch-offline');
    await fakeStreams(page, (streams) => streams);
    await untilCondition(page, 'playing');
    assert.deepEqual(longStandings(await standingsOf(page)), []);
    assert.deepEqual(complaints, []);
  });

  withPage('says that the broadcast has ended, and plays the next one', {}, async (page, complaints) => {
    await fakeStreams(page, (streams) => [{ ...demo(streams), state: 'ended' }]);
    await page.goto(`${server.url}/watch/live/demo`);
    await page.getByRole('heading', { name: 'The broadcast has ended' }).waitFor();
    await keep(page, 'watch-ended');
    await fakeStreams(page, (streams) => streams);
    await untilCondition(page, 'playing');
    assert.deepEqual(complaints, []);
  });

  withPage('plays to the end, and not anew, when the broadcast ends', {}, async (page, complaints) => {
    const made = await makeVariants({ short: [...VIDEO, ...AUDIO, '-g', '30'] }, '6');
    // The page believes itself stuck meanwhile.
    const brisk = await startServer({ config: '[live]\nreconnect = "9s"\n' });
    const publisher = await publishFile(brisk, made.files.short, 'short', ['-stream_loop', '-1']);
    try {
      await page.goto(`${brisk.url}/watch/live/short`);
      await untilCondition(page, 'playing');
      const playlists = [];
      page.on('request', (request) => {
        if (request.url().endsWith('/short/index.m3u8')) playlists.push(request.url());
      });
      // The page learns of the end from two sides, and reads the list again before it has the answer.
      await page.route('**/api/v1/streams/**', async (route) => {
        await new Promise((answered) => setTimeout(answered, 300));
        await route.fallback().catch(() => {});
      });
      await page.evaluate(() => {
        window.asking = setInterval(() => document.dispatchEvent(new Event('visibilitychange')), 100);
      });
      await publisher.stop();
      await page.waitForFunction(() => document.querySelector('video').ended);
      for (let asked = 0; asked < 20; asked += 1) await page.waitForRequest('**/api/v1/streams/**');
      await page.evaluate(() => clearInterval(window.asking));
      await untilCondition(page, 'ended');
      const { currentTime, duration } = await page.evaluate(() => {
        const { currentTime, duration } = document.querySelector('video');
        return { currentTime, duration };
      });
      assert.deepEqual(playlists, [], 'begun anew');
      assert.ok(duration - currentTime < 0.2, `at ${currentTime} of ${duration} s`);
      assert.deepEqual(complaints, []);
    } finally {
      await publisher.stop();
      await brisk.stop();
      await made.remove();
    }
  });

  withPage('stays paused with each delivery that is chosen', {}, async (page, complaints) => {
    await page.goto(`${server.url}/watch/live/demo`);
    await page.waitForFunction(() => document.querySelector('video')?.played.length > 0);
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    for (const [name, engine] of [
      ['DASH', /^dash\.js/],
      ['Push', /^MediaSource/],
      ['LL-HLS', /^hls\.js/],
    ]) {
      await page.getByRole('radio', { name }).check();
      await untilEnough(
        () => stats(page),
        (now) => engine.test(now.engine) && now.condition === 'playing',
        name,
      );
      assert.ok((await stats(page)).paused, name);
    }
    await page.getByRole('button', { name: 'Play', exact: true }).click();
    await untilTime(page, (await position(page)) + 1);
    assert.deepEqual(complaints, []);
  });

  withPage('says what failed, and tries again when asked', {}, async (page) => {
    // The page also tries again by itself, after a while. So the server fails until the click.
    let fails = true;
    const answer = (route) => (fails ? route.fulfill({ status: 500, body: 'no' }) : route.continue());
    await page.route('**/live/demo/index.m3u8', answer);
    await page.exposeFunction('clicked', () => {
      fails = false;
    });
    await page.goto(`${server.url}/watch/live/demo`);
    await page.getByRole('heading', { name: 'Playback failed' }).waitFor();
    await page
      .locator('.message')
      .getByText('The playlist could not be loaded: the server answered 500.')
      .waitFor();
    await assertAccessible(page);
    await keep(page, 'watch-failed');
    await page.evaluate(() => addEventListener('click', () => window.clicked(), { capture: true }));
    await page.getByRole('button', { name: 'Try again' }).click();
    await untilCondition(page, 'playing');
  });

  withPage('says what failed over DASH', {}, async (page) => {
    await page.route('**/live/demo/manifest.mpd', (route) => route.fulfill({ status: 500, body: 'no' }));
    await page.goto(`${server.url}/watch/live/demo?via=dash`);
    await page.locator('.message').getByText('The manifest could not be loaded').waitFor();
  });

  withPage('names a codec this browser does not decode', {}, async (page, complaints) => {
    await fakeStreams(page, (streams) => {
      const stream = demo(streams);
      const tracks = stream.tracks.map((track) =>
        track.kind === 'video' ? { ...track, codec: 'hvc1.1.6.L120.90' } : track,
      );
      return [{ ...stream, tracks }];
    });
    await page.goto(`${server.url}/watch/live/demo`);
    await page.getByRole('heading', { name: 'This browser does not decode HEVC' }).waitFor();
    await keep(page, 'watch-hevc');
    assert.deepEqual(complaints, []);
  });

  withPage('refuses deliveries it does not have, and offers those it has', {}, async (page, complaints) => {
    await page.goto(`${server.url}/watch/live/demo?via=srt`);
    await page.getByRole('heading', { name: 'Delivery “srt” is not available' }).waitFor();
    await keep(page, 'watch-unknown');
    await page.getByRole('radio', { name: 'LL-HLS' }).check();
    await untilCondition(page, 'playing');
    assert.deepEqual(complaints, []);
  });

  withPage('survives an outage of the network, and counts it', {}, async (page) => {
    await page.goto(`${server.url}/watch/live/demo`);
    await untilCondition(page, 'playing');
    await page.context().setOffline(true);
    await page.getByRole('heading', { name: 'The server cannot be reached' }).waitFor();
    const { stallSeconds: before, currentTime } = await stats(page);
    await page.waitForFunction((least) => window.headwater.stats().stallSeconds > least, before + 1);
    await page.context().setOffline(false);
    await untilTime(page, currentTime + 1);
    await untilCondition(page, 'playing');
    const { stalls, stallSeconds } = await stats(page);
    assert.ok(stalls >= 1 && stallSeconds > 1, `${stalls} stalls, ${stallSeconds} s`);
  });

  withPage('says that the server is out of reach', {}, async (page) => {
    await page.route('**/api/v1/streams/**', (route) => route.abort());
    await page.goto(`${server.url}/watch/live/demo`);
    await page.getByRole('heading', { name: 'The server cannot be reached' }).waitFor();
    await page.unroute('**/api/v1/streams/**');
    await untilCondition(page, 'playing');
  });
});

describe('other pages', () => {
  test('files that are HTML, SVG or XML run nothing', async () => {
    const root = await mkdtemp(join(tmpdir(), 'headwater-strangers-'));
    const script = (name) => `fetch('/api/v1/streams'); fetch('/vod/ran-${name}');`;
    const svg = 'xmlns="http://www.w3.org/2000/svg"';
    const files = {
      'page.html': `<!doctype html><p>Page</p><script>${script('html')}</script>`,
      'picture.svg': `<svg ${svg}><text y="20">Picture</text><script>${script('svg')}</script></svg>`,
      'data.xml': `<data><script xmlns="http://www.w3.org/1999/xhtml">${script('xml')}</script></data>`,
      'own.mpd': `<MPD><script xmlns="http://www.w3.org/1999/xhtml">${script('mpd')}</script></MPD>`,
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(root, name), text);
    const origin = await startServer({ vod: root });
    const { page } = await openPage(browser);
    try {
      const asked = [];
      page.on('request', (request) => asked.push(new URL(request.url()).pathname));
      for (const name of Object.keys(files)) {
        // The browser saves files of such a type, which ends the navigation.
        await page.goto(`${origin.url}/vod/${name}`).catch(() => {});
      }
      // This page asks the API, so all earlier requests have been seen.
      await page.goto(`${origin.url}/`);
      await page.getByRole('article', { name: 'live/demo' }).waitFor();
      assert.deepEqual(
        asked.filter((path) => path.startsWith('/vod/')),
        Object.keys(files).map((name) => `/vod/${name}`),
      );
    } finally {
      await page.context().close();
      await origin.stop();
      await rm(root, { recursive: true });
    }
  });

  withPage('may have the player in a frame, and not the dashboard', {}, async (page) => {
    const frames = ['/watch/live/demo', '/'].map((path) => `<iframe src="${server.url}${path}"></iframe>`);
    await page.setContent(frames.join(''));
    const player = page.frameLocator('iframe >> nth=0');
    await player.getByRole('group', { name: 'Player controls' }).waitFor();
    const dashboard = page.frameLocator('iframe >> nth=1');
    assert.equal(await dashboard.getByRole('article', { name: 'live/demo' }).count(), 0);
  });
});
