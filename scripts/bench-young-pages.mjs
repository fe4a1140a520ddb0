#!/usr/bin/env node
// Measures how often a fresh page stands still on a young stream. Pages run one after the other,
// each with its own origin and browser profile. Needs HEADWATER_BIN, ffmpeg and Chromium; run
// `npm ci` in web/ first.
//
//   scripts/bench-young-pages.mjs [--demo N] [--late N] [--variants 'NAME,NAME'] [--via llhls,dash,plain]
//                                 [--seconds S] [--together N]
//
// Runs N pages of the demo in the first two minutes of its origin (default 100), and N pages of
// each other named variant (20 of all in web/e2e/young.mjs), for S seconds each after the first
// picture (36), and `together` pages at the same time (1). Prints a table on standard output, and a
// line per page on standard error.
import { startBrowser, startServer } from '../web/e2e/support.mjs';
import { startPlain } from '../web/e2e/plain.mjs';
import { makeVariants, publishFile, VARIANTS, watchYoung } from '../web/e2e/young.mjs';

const all = Object.keys(VARIANTS).join(',');
const asked = { demo: 100, late: 20, variants: all, via: 'llhls,plain', seconds: 36, together: 1 };
for (let i = 2; i < process.argv.length; i += 2) {
  const name = process.argv[i].replace(/^--/, '');
  if (!(name in asked) || process.argv[i + 1] === undefined) throw new Error(`not understood: ${process.argv[i]}`);
  asked[name] = typeof asked[name] === 'string' ? process.argv[i + 1] : Number(process.argv[i + 1]);
}

const browser = await startBrowser();
const plain = await startPlain();
const variants = await makeVariants();
const rows = [];

async function one(variant, via, turn) {
  const server = await startServer({ config: '' });
  try {
    const name = variant === 'demo' ? 'demo' : 'young';
    const publisher = variant === 'demo' ? null : await publishFile(server, variants.files[variant], name);
    // Pages of the demo come at all ages of the first two minutes, more of them early.
    if (variant === 'demo') await new Promise((resolve) => setTimeout(resolve, (turn % 10) ** 2 * 1000));
    try {
      return await watchYoung(browser, server, plain, name, via, asked.seconds);
    } finally {
      await publisher?.stop();
    }
  } finally {
    await server.stop();
  }
}

for (const via of asked.via.split(',')) {
  for (const variant of ['demo', ...asked.variants.split(',')]) {
    const pages = variant === 'demo' ? asked.demo : asked.late;
    const row = { variant, via, pages, stood: 0, longest: 0, failed: 0, least: 1, frames: 1 };
    let next = 0;
    const worker = async () => {
      while (next < pages) {
        const turn = next;
        next += 1;
        try {
          const seen = await one(variant, via, turn);
          const longest = Math.max(0, ...seen.standings.map(({ ms }) => ms));
          row.stood += longest > 0 ? 1 : 0;
          row.longest = Math.max(row.longest, longest);
          row.least = Math.min(row.least, seen.played / seen.seconds);
          row.frames = Math.min(row.frames, seen.decoded / 30 / seen.seconds);
          console.error(variant, via, turn, JSON.stringify(seen.standings), seen.played.toFixed(2), seen.decoded);
        } catch (error) {
          row.failed += 1;
          console.error(variant, via, turn, error.message);
        }
      }
    };
    await Promise.all(Array.from({ length: asked.together }, worker));
    if (pages > 0) rows.push(row);
  }
}
await browser.close();
plain.close();
await variants.remove();
console.log('| stream | via | pages | stood over 300 ms | longest | no picture | least played | least decoded |');
console.log('|---|---|---|---|---|---|---|---|');
for (const { variant, via, pages, stood, longest, failed, least, frames } of rows) {
  const share = (of) => `${Math.round(of * 100)} %`;
  const cells = [variant, via, pages, stood, `${longest} ms`, failed, share(least), share(frames)];
  console.log(`| ${cells.join(' | ')} |`);
}
