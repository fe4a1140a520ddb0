import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { assertAccessible, keep, openPage, startBrowser, startServer, untilEnough } from './support.mjs';

const NATS = fileURLToPath(new URL('../../target/nats/bin/nats-server', import.meta.url));

let nats;
let browser;
/** The nodes that run. */
const running = new Set();

before(async () => {
  nats = await startNats();
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await Promise.all([...running].map(({ stop }) => stop()));
  await nats?.stop();
});

/** Starts a NATS server with JetStream on a port that it finds. */
async function startNats() {
  const home = await mkdtemp(join(tmpdir(), 'headwater-nats-'));
  const options = ['--addr', '127.0.0.1', '--port', '-1', '--jetstream', '--store_dir', home];
  const child = spawn(NATS, [...options, '--ports_file_dir', home], { stdio: 'ignore' });
  const ended = new Promise((resolve) => {
    child.once('exit', resolve);
    child.once('error', resolve);
  });
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
    await rm(home, { recursive: true });
  };
  try {
    assert.ok(child.pid, `no ${NATS}; scripts/nats.sh installs it`);
    const read = async () => {
      const file = (await readdir(home)).find((name) => name.endsWith('.ports'));
      return file ? readFile(join(home, file), 'utf8') : '';
    };
    const ports = await untilEnough(read, Boolean, `${NATS} does not start`);
    return { url: JSON.parse(ports).nats[0], stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function startNode(name, zone, demo) {
  const config = `[cluster]\nnats = ["${nats.url}"]\nnode = "${name}"\nzone = "${zone}"\n`;
  const node = await startServer({ config, demo });
  running.add(node);
  const stop = async () => {
    running.delete(node);
    await node.stop();
  };
  return { ...node, stop };
}

test('the page of nodes shows who copies a stream, and a node that went away', async () => {
  const [a, b] = await Promise.all([startNode('a', 'eu', true), startNode('b', 'us', false)]);
  const { page, complaints } = await openPage(browser);
  await page.goto(`${a.url}/`);
  await page.getByRole('link', { name: 'Nodes' }).click();
  await page.waitForURL('**/nodes');
  const row = (name) => page.locator(`[data-node="${name}"]`);
  await row('b').getByText('us').waitFor();
  assert.match(await row('a').textContent(), /^a this node/);
  await page
    .getByTestId('summary')
    .getByText(/^2 nodes, 1 live stream, \d+ viewers?$/)
    .waitFor();
  const stream = page.locator('[data-stream="live/demo"]');
  await stream.getByText('nobody').waitFor();

  // A viewer of b makes it copy the stream.
  const ask = async () => (await fetch(`${b.url}/live/demo/v0/media.m3u8`)).status;
  await untilEnough(ask, (status) => status === 200, 'b has no copy');
  await stream.getByText('b up to date').waitFor();
  await row('a').getByText('Ready').waitFor();
  await assertAccessible(page);
  await keep(page, 'nodes');
  await page.setViewportSize({ width: 320, height: 640 });
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);
  await assertAccessible(page);
  await keep(page, 'nodes-narrow-dark');

  await b.stop();
  await row('b').getByText('Gone').waitFor();
  await stream.getByText('nobody').waitFor();
  await page.setViewportSize({ width: 1280, height: 800 });
  await assertAccessible(page);
  await keep(page, 'nodes-gone-dark');
  assert.deepEqual(complaints, []);
});
