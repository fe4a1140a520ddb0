import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startBrowser, startServer } from './support.mjs';
import { makeVariants, publishFile, startPlain, VARIANTS, watchYoung } from './young.mjs';

/**
 * How long a picture may stand here, in milliseconds: three pages, ffmpeg and the origin share the processors. What is
 * looked for lasted seconds; scripts/bench-young-pages.mjs counts every one past STANDS.
 */
const STOOD = 1000;
/** How long each page is watched after its first picture, in seconds. */
const WATCHED = 12;
/** So much later than its media hls.js may believe a part to be, in seconds: nothing, but for arithmetic. */
const LATE = 1e-5;
/** And so much earlier: a picture is decoded one before it is shown, by which hls.js places the first part. */
const EARLY = 1 / 30 + 0.002;

let browser;
let plain;
let variants;

before(async () => {
  variants = await makeVariants();
  [browser, plain] = [await startBrowser(), await startPlain()];
});

after(async () => {
  plain?.close();
  await browser?.close();
  await variants?.remove();
});

/** A stream that has just begun, watched by several deliveries at once. */
async function young(variant, vias) {
  // Each stream has its own server, whose life begins with it.
  const server = await startServer({ config: '' });
  const name = variant === 'demo' ? 'demo' : 'young';
  const publisher = variant === 'demo' ? null : await publishFile(server, variants.files[variant], name);
  try {
    return await Promise.all(vias.map((via) => watchYoung(browser, server, plain, name, via, WATCHED)));
  } finally {
    await publisher?.stop();
    await server.stop();
  }
}

function assertGoesOn(t, via, { standings, played, decoded, complaints }) {
  t.diagnostic(`${via}: played ${played.toFixed(2)} s of ${WATCHED}, ${decoded} pictures`);
  const long = standings.filter(({ ms }) => ms > STOOD);
  assert.deepEqual(long, [], `${via}: stood for more than ${STOOD} ms`);
  assert.ok(played > WATCHED * 0.9, `${via}: played ${played} s of ${WATCHED}`);
  // Who catches up with live may jump over some.
  assert.ok(decoded > Math.min(played, WATCHED) * 30 * 0.95, `${via}: decoded ${decoded} pictures`);
  if (via !== 'plain') assert.deepEqual(complaints, []);
}

describe('a young stream', () => {
  for (const variant of ['demo', ...Object.keys(VARIANTS)]) {
    test(`${variant}: goes on from the first picture`, async (t) => {
      const vias = ['llhls', 'plain', 'dash'];
      const seen = await young(variant, vias);
      for (const [i, via] of vias.entries()) assertGoesOn(t, via, seen[i]);
    });
  }

  test('goes on where hls.js is slow to parse', async (t) => {
    const server = await startServer({ config: '' });
    try {
      // A part lasts longer, and the last part of a segment of sound does not.
      const seen = await watchYoung(browser, server, plain, 'demo', 'plain', WATCHED, 100);
      assertGoesOn(t, 'plain', seen);
    } finally {
      await server.stop();
    }
  });

  test('is placed by hls.js where its media are', async (t) => {
    const [{ placed }] = await young('demo', ['plain']);
    assert.ok(placed.length > 50, `${placed.length} parts`);
    const [early, late] = [Math.min, Math.max].map((most) => most(...placed.map(({ off }) => off)));
    t.diagnostic(`${placed.length} parts, from ${early * 1000} to ${late * 1000} ms`);
    assert.ok(late <= LATE, `placed ${late * 1000} ms after its media`);
    assert.ok(-early <= EARLY, `placed ${-early * 1000} ms before its media`);
  });
});
