// Tables of `streamgauge report` are sorted by their headings and saved as CSV. The program is beside HEADWATER_BIN.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { startBrowser } from './support.mjs';

if (!process.env.HEADWATER_BIN) throw new Error('HEADWATER_BIN is needed: streamgauge is in its folder');
const STREAMGAUGE = join(dirname(process.env.HEADWATER_BIN), 'streamgauge');
const SCENARIO = `
title = "Small"
[[load]]
name = "one"
peers = ["a", "b"]
job = "file"
path = "x"
with = "http"
arguments = ["{url}"]
[load.cases]
clients = [1, 2]
[[table]]
title = "Rates"
load = "one"
rows = ["clients", "peer"]
values = [{ metric = "rate", title = "rate" }, { metric = "cost", title = "cost" }]
`;
/** Clients, peer, rate, cost. */
const TRIALS = [
  [1, 'a', 900, 3],
  [1, 'b', 1000, 2],
  [2, 'a', 80, 10],
  [2, 'b', 9000, undefined],
];

let browser;
let home;

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'streamgauge-report-'));
  browser = await startBrowser();
  await writeFile(join(home, 'scenario.toml'), SCENARIO);
  const began = '2026-11-22T01:00:00Z';
  const machine = {
    processor: 'x',
    processors: 1,
    memory: 1,
    kernel: '',
    system: '',
    server_cpus: '',
    load_cpus: '',
  };
  const run = {
    form: 1,
    scenario: 'small',
    title: 'Small',
    scale: 1,
    began,
    ended: null,
    command: [],
    machine,
  };
  await writeFile(join(home, 'run.json'), JSON.stringify({ ...run, peers: {}, absent: {}, warnings: [] }));
  for (const [clients, peer, rate, cost] of TRIALS) {
    const folder = join(home, `trials/one/clients=${clients}/${peer}/1`);
    await mkdir(folder, { recursive: true });
    const trial = { form: 1, load: 'one', parameters: { clients }, peer, repetition: 1, began, elapsed: 1 };
    const rest = { commands: [], metrics: { rate, cost }, saturated: false, warnings: [], failed: null };
    await writeFile(join(folder, 'trial.json'), JSON.stringify({ ...trial, ...rest }));
  }
  await promisify(execFile)(STREAMGAUGE, ['report', home]);
});

after(async () => {
  await browser?.close();
  await rm(home, { recursive: true });
});

test('a heading sorts its table, and each row keeps its headings', async () => {
  const page = await (await browser.newContext()).newPage();
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  await page.goto(pathToFileURL(join(home, 'report/index.html')).href);
  const rows = () =>
    page.$$eval('#table-1 tbody tr', (all) =>
      all.map((row) =>
        [...row.cells].map((cell) => (cell.classList.contains('again') ? '' : cell.textContent)),
      ),
    );
  const original = await rows();
  assert.deepEqual(original, [
    ['1', 'a', '900', '3'],
    ['', 'b', '1,000', '2'],
    ['2', 'a', '80', '10'],
    ['', 'b', '9,000', '–'],
  ]);
  const sort = (name) => page.getByRole('columnheader', { name }).getByRole('button').click();
  const order = async () => (await rows()).map((row) => row.slice(1).join(' '));
  await sort('rate');
  assert.deepEqual(await rows(), [
    ['2', 'a', '80', '10'],
    ['1', 'a', '900', '3'],
    ['', 'b', '1,000', '2'],
    ['2', 'b', '9,000', '–'],
  ]);
  await sort('rate');
  assert.deepEqual(await order(), ['b 9,000 –', 'b 1,000 2', 'a 900 3', 'a 80 10']);
  await sort('rate');
  assert.deepEqual(await rows(), original);
  // A row without a value is the last in both directions.
  await sort('cost');
  assert.deepEqual(await order(), ['b 1,000 2', 'a 900 3', 'a 80 10', 'b 9,000 –']);
  await sort('cost');
  assert.deepEqual(await order(), ['a 80 10', 'a 900 3', 'b 1,000 2', 'b 9,000 –']);
  await sort('server');
  assert.deepEqual(await order(), ['a 900 3', 'a 80 10', 'b 1,000 2', 'b 9,000 –']);
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Table 1 as CSV' }).click();
  const csv = await readFile(await (await download).path(), 'utf8');
  assert.equal(csv.split('\r\n')[1], '1,a,900,3');
  assert.deepEqual(complaints, []);
});
