import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import {
  keep,
  openPage,
  PATIENCE,
  position,
  startBrowser,
  startServer,
  untilCondition,
  untilTime,
} from './support.mjs';

let folder;
let server;
let browser;
/** The signed path of the demo's page. */
let signed;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'headwater-access-'));
  const key = join(folder, 'key');
  writeFileSync(key, 'a key that has at least 32 bytes in it');
  server = await startServer({ config: `[access]\nsigning_key = ${JSON.stringify(key)}\n` });
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

test('a page without one says what is needed', { timeout: 3 * PATIENCE }, async () => {
  const { page } = await openPage(browser);
  await page.goto(`${server.url}/watch/live/demo`);
  await page.getByText('credentials are needed').first().waitFor();
  await keep(page, 'access-refused');
  await page.context().close();
});
