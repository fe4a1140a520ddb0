import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  keep,
  openPage,
  PATIENCE,
  position,
  startBrowser,
  startServer,
  untilCondition,
  untilEnough,
  untilTime,
} from './support.mjs';

const CLIP = fileURLToPath(new URL('../../crates/headwater/assets/demo.mp4', import.meta.url));
const KEY = 'a key, 100% & more';
const PASSWORD = 'geheim:ß';

let folder;
let server;
let browser;
/** The signed path of the demo's page. */
let signed;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'headwater-access-'));
  const key = join(folder, 'key');
  writeFileSync(key, 'a key that has at least 32 bytes in it');
  copyFileSync(CLIP, join(folder, 'clip.mp4'));
  const rule = `[[access.rule]]\nactions = ["play"]\n`;
  server = await startServer({
    vod: folder,
    operated: true,
    config: `[access]\nsigning_key = ${JSON.stringify(key)}\n${rule}key = ${JSON.stringify(KEY)}
${rule}user = "alice"\npassword = ${JSON.stringify(PASSWORD)}\n`,
  });
  const sign = ['sign', 'live/demo', '--expires', '1h', '--key', key];
  const path = execFileSync(process.env.HEADWATER_BIN, sign, { encoding: 'utf8' }).trim();
  signed = path.replace('/live/demo', '/watch/live/demo');
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe('a page with a signed path plays', () => {
  for (const via of ['llhls', 'dash', 'push', 'webrtc']) {
    test(via, { timeout: 3 * PATIENCE }, async () => {
      const { page, complaints } = await openPage(browser);
      await page.goto(`${server.url}${signed}?via=${via}`);
      await untilCondition(page, 'playing');
      await untilTime(page, (await position(page)) + 2);
      assert.deepEqual(complaints, []);
      await page.context().close();
    });
  }
});

describe('a page with credentials in its query plays', () => {
  const key = `key=${encodeURIComponent(KEY)}`;
  const user = `user=alice&password=${encodeURIComponent(PASSWORD)}`;
  for (const [via, stream, credentials] of [
    ['llhls', 'live/demo', key],
    ['llhls', 'live/demo', user],
    ['llhls', 'live/demo', `token=${encodeURIComponent('not a token')}&${key}`],
    ['hls', 'live/demo', key],
    ['dash', 'live/demo', key],
    ['push', 'live/demo', key],
    ['push', 'live/demo', user],
    ['webrtc', 'live/demo', key],
    ['file', 'vod/clip.mp4', key],
  ]) {
    test(`${via} ${stream}, ${credentials}`, { timeout: 3 * PATIENCE }, async () => {
      const { page, complaints } = await openPage(browser);
      const requests = [];
      page.on('request', (request) => requests.push(request));
      await page.goto(`${server.url}/watch/${stream}?${credentials}&via=${via}`);
      await untilCondition(page, 'playing');
      await untilTime(page, (await position(page)) + 2);
      assert.deepEqual(complaints, []);
      // They are in no address but the page's own, those of sockets, and that of the beacon.
      const [, ...others] = requests.map((request) => new URL(request.url()));
      const telling = others.filter(({ search }) => search.includes(credentials));
      assert.deepEqual(
        telling.filter(({ pathname }) => !/\/(push|cmcd)$/.test(pathname)),
        [],
      );
      const headers = await Promise.all(requests.map((request) => request.allHeaders()));
      const referers = new Set(headers.map(({ referer }) => referer));
      assert.deepEqual([...referers].sort(), [`${server.url}/`, undefined]);
      await page.context().close();
    });
  }

  test('and keeps them', { timeout: 3 * PATIENCE }, async () => {
    const { page, complaints } = await openPage(browser);
    await page.goto(`${server.url}/watch/live/demo?${key}`);
    await untilCondition(page, 'playing');
    await page.getByRole('radio', { name: 'Push' }).check();
    await page.waitForURL(`${server.url}/watch/live/demo?via=push&${key}`);
    await page.reload();
    await untilCondition(page, 'playing');
    assert.deepEqual(complaints, []);
    await page.getByText('Addresses for other players').click();
    const shown = await page.locator('.elsewhere code').allTextContents();
    assert.equal(shown.length, 5);
    assert.ok(
      shown.every((address) => address.endsWith(key)),
      shown.join(),
    );
    await page.context().close();
  });
});

test('a page with a wrong key says so', { timeout: 3 * PATIENCE }, async () => {
  const { page } = await openPage(browser);
  await page.goto(`${server.url}/watch/live/demo?key=wrong`);
  await page.getByText('The server says').first().waitFor();
  await page.context().close();
});

test('a page without one says what is needed', { timeout: 3 * PATIENCE }, async () => {
  const { page } = await openPage(browser);
  await page.goto(`${server.url}/watch/live/demo`);
  await page.getByText('credentials are needed').first().waitFor();
  await keep(page, 'access-refused');
  await page.context().close();
});

test('a page waits while its user types a password, and does not ask again', {
  timeout: 3 * PATIENCE,
}, async () => {
  const rule = 'actions = ["api"]\nuser = "alice"\npassword = "geheim"\n';
  const own = await startServer({ demo: false, config: `[[access.rule]]\n${rule}` });
  const { page } = await openPage(browser);
  let [looks, refused] = [0, 0];
  page.on('response', (response) => {
    if (response.status() !== 401) return;
    if (response.request().method() === 'HEAD') looks += 1;
    else refused += 1;
  });
  const devtools = await page.context().newCDPSession(page);
  const dialogs = [];
  devtools.on('Fetch.authRequired', ({ requestId }) => dialogs.push(requestId));
  devtools.on('Fetch.requestPaused', ({ requestId }) =>
    devtools.send('Fetch.continueRequest', { requestId }),
  );
  await devtools.send('Fetch.enable', { handleAuthRequests: true });
  const reply = async (authChallengeResponse) => {
    for (const requestId of dialogs) {
      await devtools.send('Fetch.continueWithAuth', { requestId, authChallengeResponse });
    }
  };

  await page.goto(own.url);
  // The page has looked whether the server is there, and its requests are still those of the beginning.
  await untilEnough(
    () => looks,
    (count) => count >= 4,
    'the page does not look',
  );
  const opened = dialogs.length;
  await reply({ response: 'CancelAuth' });
  await page.getByText('Load the page again').first().waitFor();
  const before = refused;
  await untilEnough(
    () => refused,
    (count) => count >= before + 3,
    'the page does not go on',
  );
  assert.equal(dialogs.length, opened);

  dialogs.length = 0;
  looks = 0;
  await page.reload();
  await untilEnough(
    () => looks,
    (count) => count >= 2,
    'the page does not look',
  );
  await reply({ response: 'ProvideCredentials', username: 'alice', password: 'geheim' });
  await page.getByText('Nothing is live yet').first().waitFor();
  await page.context().close();
  await own.stop();
});

for (const via of ['llhls', 'dash']) {
  test(`a page by ${via} whose session is ended says why`, { timeout: 3 * PATIENCE }, async () => {
    // In a browser of its own: it is refused from then on.
    const { page } = await openPage(browser, { userAgent: `Mozilla/5.0 (refused ${via})` });
    await page.goto(`${server.url}${signed}?via=${via}`);
    await untilCondition(page, 'playing');
    const sessions = `${server.operators}/api/v1/sessions`;
    const { sessions: open } = await (await fetch(`${sessions}?stream=live/demo&action=play`)).json();
    // Pages before may not have left yet.
    const { id, bytes } = open.at(-1);
    assert.ok(bytes > 0, JSON.stringify(open));
    assert.equal((await fetch(`${sessions}/${id}`, { method: 'DELETE' })).status, 204);
    await page.getByText('an administrator ended this session').first().waitFor();
    await page.context().close();
  });
}
