import assert from 'node:assert/strict';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  assertAccessible,
  awaitAnswers,
  fakeStreams,
  keep,
  openPage,
  startBrowser,
  startServer,
} from './support.mjs';
import { AUDIO, makeVariants, publishFile, VIDEO } from './young.mjs';

const WIDE = { viewport: { width: 1280, height: 900 } };
const NARROW = { viewport: { width: 320, height: 640 }, colorScheme: 'dark' };

const MEDIA = fileURLToPath(new URL('../../target/media/mp4', import.meta.url));
const DEMO = fileURLToPath(new URL('../../crates/headwater/assets/demo.mp4', import.meta.url));

let made;
let titles;
let server;
let publisher;
let browser;

before(async () => {
  // Its keyframes are 8.3 s apart.
  made = await makeVariants({ seldom: [...VIDEO, ...AUDIO, '-g', '250'] }, '20');
  titles = await makeShelf();
  server = await startServer({ vod: titles, config: '[live]\nreconnect = "1s"\n', operated: true });
  publisher = await publishFile(server, made.files.seldom, 'seldom', ['-stream_loop', '-1']);
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await publisher?.stop();
  await server?.stop();
  await made?.remove();
  if (titles) await rm(titles, { recursive: true });
});

/** A folder of titles: films that browsers decode, one that they do not, sound, a broken one, and 1,010 in a folder. */
async function makeShelf() {
  const root = await mkdtemp(join(tmpdir(), 'headwater-shelf-'));
  for (const name of ['films', 'many', 'empty']) await mkdir(join(root, name));
  await Promise.all([
    copyFile(DEMO, join(root, 'demo.mp4')),
    copyFile(
      join(MEDIA, 'two-minutes.mp4'),
      join(root, 'a name, 100 % & #1, with ümläuts, that is longer than a line.mp4'),
    ),
    copyFile(join(MEDIA, 'hevc.mp4'), join(root, 'hevc.mp4')),
    copyFile(join(MEDIA, 'sound.mp4'), join(root, 'sound.mp4')),
    writeFile(join(root, 'broken.mp4'), 'This is no film.'),
    ...['high', 'low'].map((name) => copyFile(DEMO, join(root, `films/${name}.mp4`))),
    ...Array.from({ length: 1010 }, (_, i) =>
      writeFile(join(root, `many/${String(i).padStart(4, '0')}.mp4`), ''),
    ),
  ]);
  return root;
}

const tile = (page, path) => page.locator(`[data-title="${path}"]`);

/** Waits for a title's picture, which is not of one colour. */
async function untilPictured(page, path) {
  const canvas = page.locator(`[data-title="${path}"][data-poster=drawn] canvas`);
  await canvas.waitFor();
  const colours = await canvas.evaluate((it) => {
    const { data } = it.getContext('2d').getImageData(0, 0, it.width, it.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  assert.ok(colours > 50, `${path}: ${colours} colours`);
}

/** Runs `body` with a page and closes it, whatever happens. */
function withPage(name, options, body) {
  test(name, async () => {
    const { page, complaints } = await openPage(browser, options);
    try {
      await body(page, complaints);
    } finally {
      await page.unrouteAll({ behavior: 'ignoreErrors' });
      await page.context().close();
    }
  });
}

/** Plays a stream as live FLV until the server ends it, or `leave`. */
async function view(name) {
  const left = new AbortController();
  const response = await fetch(`${server.url}/live/${name}/live.flv`, { signal: left.signal });
  assert.equal(response.status, 200);
  const over = (async () => {
    for await (const _ of response.body);
  })().catch(() => {});
  return { over, leave: () => left.abort() };
}

/** Waits until `count` lines of charts have two samples or more. */
function untilDrawn(page, count) {
  return page.waitForFunction(
    (wanted) =>
      [...document.querySelectorAll('[data-testid=line]')].filter((line) =>
        line.getAttribute('d').includes('L'),
      ).length >= wanted,
    count,
  );
}

/** Waits until the page has painted so many frames. Tiles get their own size in the second frame that shows them. */
async function untilPainted(page, frames) {
  await page.evaluate((frames) => {
    window.unpainted = frames;
    const paint = () => {
      window.unpainted -= 1;
      if (window.unpainted > 0) requestAnimationFrame(paint);
    };
    requestAnimationFrame(paint);
  }, frames);
  await page.waitForFunction(() => window.unpainted <= 0);
}

const fits = async (page) =>
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);

withPage('the overview has lines, and says what a stream lacks', WIDE, async (page, complaints) => {
  const viewers = [await view('demo'), await view('demo'), await view('seldom')];
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  await page.goto(`${server.operators}/`);
  const card = page.getByRole('article', { name: 'live/seldom' });
  await card.getByText(/keyframes are \d\.\d s apart: viewers join late/).waitFor();
  await card.getByText('1 warning').waitFor();
  await page.getByRole('article', { name: 'live/demo' }).getByText('Healthy').waitFor();
  // One of viewers, by FLV; one each of what is sent and of processors; two of memory.
  await untilDrawn(page, 5);
  const chart = page.getByRole('region', { name: 'Viewers', exact: true });
  await chart.getByTestId('newest').getByText('3', { exact: true }).waitFor();
  assert.match(await chart.getByRole('list').textContent(), /FLV 3/);
  assert.match(
    await chart.locator('.sr-only').textContent(),
    /^Over the last \d+ minutes from 0 to 3, now 3\.$/,
  );
  await page
    .getByRole('region', { name: 'Processors used' })
    .getByText(/of \d+/)
    .waitFor();

  // The pointer reads another time in all charts.
  const picture = page.getByRole('img', { name: 'Memory' });
  const { x, y, width } = await picture.boundingBox();
  await page.mouse.move(x + width - 1, y + 50);
  await page.locator('.reading').nth(3).waitFor({ state: 'attached' });
  await page.mouse.move(0, 0);
  await page.locator('.reading').first().waitFor({ state: 'detached' });

  await page.getByRole('checkbox', { name: /only with warnings/ }).check();
  await page.getByRole('article', { name: 'live/demo' }).waitFor({ state: 'detached' });
  assert.ok(await card.isVisible());
  await page.getByRole('checkbox', { name: /only with warnings/ }).uncheck();
  await assertAccessible(page);
  await keep(page, 'dashboard-overview');
  await page.emulateMedia({ colorScheme: 'dark' });
  await assertAccessible(page);
  await keep(page, 'dashboard-overview-dark');
  // Nobody looks at a stream of its own.
  assert.deepEqual(
    asked.filter((url) => url.includes('/sessions')),
    [],
  );
  assert.deepEqual(complaints, []);
  for (const viewer of viewers) viewer.leave();
});

withPage('a viewer is listed, and ended by the button', WIDE, async (page, complaints) => {
  const viewer = await view('seldom');
  await page.goto(`${server.operators}/`);
  await page.getByRole('link', { name: 'live/seldom', exact: true }).first().click();
  await page.waitForURL('**/#stream=live/seldom');
  await page.waitForFunction(() => document.title === 'live/seldom – headwater');
  // The view has the focus.
  await page.waitForFunction(() => document.activeElement.matches('h1'));
  await page.getByRole('heading', { name: 'live/seldom', level: 1 }).waitFor();
  await page.getByText(/keyframes are \d\.\d s apart/).waitFor();
  await page
    .getByRole('region', { name: 'Publishers', exact: true })
    .getByText('RTMP', { exact: true })
    .waitFor();
  const row = page.getByRole('region', { name: 'Viewers one by one' }).locator('tbody tr');
  await row.getByText('FLV', { exact: true }).first().waitFor();
  // Others may have viewed the stream before, and each leaves in its time.
  await page.waitForFunction(
    () => document.querySelectorAll('[aria-labelledby=viewers] tbody tr').length === 1,
  );
  const id = await row.getAttribute('data-session');
  const peer = await row.locator('code').textContent();
  assert.match(peer, /^127\.0\.0\.1:\d+$/);
  await untilDrawn(page, 5);

  // The focus stays while the figures grow.
  const end = row.getByRole('button', { name: `End FLV ${peer}` });
  await end.focus();
  const before = await row.locator('.figure').first().textContent();
  await page.waitForFunction(
    ([id, before]) => document.querySelector(`[data-session="${id}"] .figure`).textContent !== before,
    [id, before],
  );
  assert.ok(await end.evaluate((element) => element === document.activeElement), 'the focus stays');
  await page
    .getByRole('region', { name: 'Viewers one by one' })
    .getByRole('button', { name: 'Bytes' })
    .click();
  await page.locator('[aria-labelledby=viewers] th[aria-sort=descending]').getByText('Bytes').waitFor();
  await assertAccessible(page);
  await keep(page, 'dashboard-stream');

  // Escape keeps the viewer, and the button has the focus again.
  await end.focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Disconnect this viewer?' });
  await dialog.getByText(peer).waitFor();
  await assertAccessible(page);
  await keep(page, 'dashboard-confirm');
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.ok(await end.evaluate((element) => element === document.activeElement), 'the focus is back');

  await end.click();
  await dialog.getByRole('button', { name: 'End session' }).click();
  await viewer.over;
  await page.getByTestId('viewers-said').getByText(`${peer} was disconnected.`).waitFor();
  await page.locator(`[aria-labelledby=viewers] [data-session="${id}"]`).waitFor({ state: 'detached' });
  const gone = page.locator(`[aria-labelledby=ended] [data-session="${id}"]`);
  await gone.waitFor();
  assert.match(await gone.textContent(), /FLV.*administrator/);
  await page.getByRole('link', { name: 'All streams' }).click();
  await page.getByRole('article', { name: 'live/demo' }).waitFor();
  // The list is as it was left.
  await page.waitForFunction(() => document.activeElement.textContent === 'live/seldom');
  assert.ok(await page.evaluate(() => document.activeElement.closest('article') !== null));
  assert.deepEqual(complaints, []);
});

withPage('a folder with any name is left for the list of streams', WIDE, async (page, complaints) => {
  await page.goto(`${server.operators}/#titles=vod/${encodeURIComponent('a "name"]')}`);
  await page.getByRole('link', { name: 'All streams' }).click();
  await page.waitForFunction(() => document.activeElement.matches('h1'));
  // There is no such folder.
  assert.deepEqual(
    complaints.filter((complaint) => complaint.startsWith('exception')),
    [],
  );
});

withPage('events appear, can be chosen, and are followed again after a cut', WIDE, async (page) => {
  await page.route('**/api/v1/events*', (route) => route.abort());
  await page.goto(`${server.operators}/`);
  const connection = page.getByTestId('connection');
  await connection.getByText('cut off, trying again…').waitFor();
  await keep(page, 'dashboard-cut-off');
  await page.unroute('**/api/v1/events*');
  await connection.getByText('following', { exact: true }).waitFor();
  // What happened before the page came.
  const log = page.getByRole('region', { name: 'Newest events' });
  await log.getByText('live/demo is live').waitFor();
  const short = await publishFile(server, made.files.seldom, 'short');
  await log.getByText('live/short is live').waitFor();
  await short.stop();
  await log.getByText('live/short has lost its publisher').waitFor();
  await log.getByText('live/short has ended').waitFor();
  await page.getByRole('checkbox', { name: 'Streams' }).uncheck();
  await log.getByText('live/short is live').waitFor({ state: 'detached' });
  await page.getByRole('checkbox', { name: 'Streams' }).check();
  await log.getByText('live/short is live').waitFor();
});

withPage('the log of the server is followed while it is open', NARROW, async (page) => {
  const refused = () =>
    fetch(`${server.url}/live/demo/whip`, {
      method: 'POST',
      body: 'none',
      headers: { 'Content-Type': 'application/sdp' },
    });
  await page.goto(`${server.operators}/`);
  await page.getByText('Log of the server').click();
  await page.getByTestId('log-connection').getByText('following', { exact: true }).waitFor();
  const log = page.getByRole('region', { name: 'Newest lines of the log' });
  // What was logged before the page came.
  await log.getByText(/ready http=/).waitFor();
  await refused();
  await log
    .getByText(/webrtc offer refused/)
    .first()
    .waitFor();
  await fits(page);
  await assertAccessible(page);
  await keep(page, 'dashboard-log-narrow-dark');
  await page.getByRole('checkbox', { name: 'Only warnings and errors' }).check();
  await log.getByText(/ready http=/).waitFor({ state: 'detached' });
  await page.route('**/api/v1/log*', (route) => route.fulfill({ status: 403, body: 'only administrators' }));
  await page.reload();
  await page.getByText('Log of the server').click();
  await page.getByTestId('log-connection').getByText('only administrators may read this').waitFor();
});

withPage('both views fit 320 pixels, dark', NARROW, async (page) => {
  const viewer = await view('seldom');
  await page.goto(`${server.operators}/`);
  await page.getByRole('article', { name: 'live/seldom' }).getByText('1 warning').waitFor();
  await untilDrawn(page, 4);
  await fits(page);
  await assertAccessible(page);
  await keep(page, 'dashboard-overview-narrow-dark');
  await page.goto(`${server.operators}/#stream=live/seldom`);
  const row = page.getByRole('region', { name: 'Viewers one by one' }).locator('tbody tr').first();
  // The button is in sight, although the table is wider than the page.
  const button = await row.getByRole('button').boundingBox();
  assert.ok(button.x + button.width <= 320, `${button.x} + ${button.width}`);
  await untilDrawn(page, 5);
  await fits(page);
  await assertAccessible(page);
  await keep(page, 'dashboard-stream-narrow-dark');
  viewer.leave();
});

withPage('titles on disk have pictures', WIDE, async (page, complaints) => {
  // If an answer is late, the page says so above the list, and the list moves.
  await awaitAnswers(page);
  // What is in the titles comes only when the list stands.
  let listed;
  const stands = new Promise((resolve) => {
    listed = resolve;
  });
  await page.route('**/api/v1/titles/**', async (route) => {
    await stands;
    await route.continue();
  });
  await page.goto(`${server.operators}/`);
  await page.getByRole('link', { name: 'Titles' }).click();
  await page.waitForURL('**/#titles=vod');
  await page.waitForFunction(() => document.activeElement.matches('h1'));
  const long = 'vod/a name, 100 % & #1, with ümläuts, that is longer than a line.mp4';
  await tile(page, 'vod/demo.mp4').waitFor();
  await untilPainted(page, 3);
  await page.evaluate(() => {
    window.shifts = [];
    const note = (list) => window.shifts.push(...list.getEntries().map(({ value }) => value));
    new PerformanceObserver(note).observe({ type: 'layout-shift', buffered: false });
  });
  listed();
  await untilPictured(page, 'vod/demo.mp4');
  await untilPictured(page, long);
  assert.match(await tile(page, 'vod/demo.mp4').textContent(), /0:16, 1280.×.720, H\.264, 2\.5.MB/);
  await tile(page, 'vod/broken.mp4')
    .getByText(/^Cannot be played: /)
    .waitFor();
  await tile(page, 'vod/sound.mp4')
    .getByText(/^0:\d+, /)
    .waitFor();
  // It is known, and this browser has no picture of it.
  await tile(page, 'vod/hevc.mp4')
    .getByText(/H\.265|HEVC/)
    .waitFor();
  assert.equal(await tile(page, 'vod/hevc.mp4').getAttribute('data-poster'), 'none');
  await untilPainted(page, 3);
  assert.deepEqual(await page.evaluate(() => window.shifts), []);
  // To look at pictures is not to watch.
  assert.equal(
    await page
      .getByRole('article')
      .getByText(/viewer/)
      .count(),
    0,
  );
  assert.equal((await fetch(`${server.url}/vod/demo.mp4/index.m3u8`)).status, 200);
  await tile(page, 'vod/demo.mp4').getByText('1 viewer', { exact: true }).waitFor();
  await assertAccessible(page);
  await keep(page, 'dashboard-titles');
  await page.emulateMedia({ colorScheme: 'dark' });
  await assertAccessible(page);
  await keep(page, 'dashboard-titles-dark');

  // Folders are opened by keyboard, and the way back is there.
  await page.getByRole('link', { name: 'films', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.waitForURL('**/#titles=vod/films');
  await untilPictured(page, 'vod/films/low.mp4');
  await page.getByRole('link', { name: 'Watch as one title' }).waitFor();
  await page.getByRole('navigation').getByRole('link', { name: 'Titles' }).click();
  await tile(page, 'vod/films').waitFor();
  await page.goBack();
  await tile(page, 'vod/films/high.mp4').waitFor();
  await page.goto(`${server.operators}/#titles=vod/empty`);
  await page.getByText('There are no titles here').waitFor();
  assert.deepEqual(complaints, []);
  await page.goto(`${server.operators}/#titles=vod/none`);
  await page.getByRole('alert').getByText('It answers with the status 404').waitFor();
});

withPage('of a thousand titles only those in sight are opened', WIDE, async (page) => {
  const asked = new Set();
  page.on('request', (request) => {
    const { pathname } = new URL(request.url());
    if (pathname.startsWith('/api/v1/titles/')) asked.add(pathname);
  });
  await page.goto(`${server.operators}/#titles=vod/many`);
  await page.getByRole('article').nth(999).waitFor({ state: 'attached' });
  await tile(page, 'vod/many/0000.mp4')
    .getByText(/^Cannot be played: /)
    .waitFor();
  assert.ok(asked.size < 100, `${asked.size} are opened`);
  await page.getByRole('button', { name: 'Show more' }).click();
  const last = tile(page, 'vod/many/1009.mp4');
  await last.scrollIntoViewIfNeeded();
  await last.getByText(/^Cannot be played: /).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Show more' }).count(), 0);
  assert.ok(asked.size < 200, `${asked.size} are opened`);
});

withPage('titles fit 320 pixels, dark', NARROW, async (page) => {
  await page.goto(`${server.operators}/#titles=vod`);
  await tile(page, 'vod/demo.mp4').scrollIntoViewIfNeeded();
  await untilPictured(page, 'vod/demo.mp4');
  await fits(page);
  await assertAccessible(page);
  await keep(page, 'dashboard-titles-narrow-dark');
});

withPage('of a thousand streams some are drawn, and each is found', WIDE, async (page) => {
  await fakeStreams(page, ([stream]) =>
    Array.from({ length: 1000 }, (_, i) => ({ ...stream, name: `live/s${String(i).padStart(3, '0')}` })),
  );
  await page.goto(`${server.operators}/`);
  await page.getByTestId('summary').getByText('1,000 live streams').waitFor();
  assert.equal(await page.getByRole('article').count(), 50);
  await page.getByRole('button', { name: 'Show 50 of 950 further streams' }).click();
  await page.getByRole('article').nth(99).waitFor();
  await page.getByRole('searchbox', { name: 'Find streams by name' }).fill('s999');
  await page.getByRole('article').nth(1).waitFor({ state: 'detached' });
  assert.ok(await page.getByRole('article', { name: 'live/s999' }).isVisible());
});

withPage('what players tell is in the view of their stream', WIDE, async (page) => {
  const quality = {
    viewers: 54,
    buffer_seconds: { median: 1.9, bad: 0.7 },
    startup_seconds: { median: 0.6, bad: 1.8 },
    throughput: { median: 25e6, bad: 4.1e6 },
    bitrate: null,
    urgent: 1,
    stalls: 17,
  };
  await fakeStreams(page, (streams) => streams.map((stream) => ({ ...stream, quality })));
  await page.goto(`${server.operators}/#stream=live/demo`);
  const told = page.getByRole('region', { name: 'What players tell' });
  await told.getByText('54 viewers').waitFor();
  assert.match(await told.textContent(), /Buffer1\.90 sone in ten: 0\.70 s or less.*Stalls17/);
  assert.equal(await told.getByText('Bitrate').count(), 0);
  await assertAccessible(page);
  await keep(page, 'dashboard-quality');
});
