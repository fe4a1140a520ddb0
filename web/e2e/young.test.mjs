import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startPlain } from './plain.mjs';
import { longStandings } from './standings.mjs';
import { startBrowser, startServer } from './support.mjs';
import { FAR, makeVariants, publishFile, VARIANTS, watchYoung } from './young.mjs';

/** How much each page plays after its first frame, in seconds of media. */
const WATCHED = 12;
/**
 * With late video, hls.js once stood still 24 s after the stream had begun (docs/player.md). The
 * irregular keyframes are up to 10 s apart, and dash.js once showed half of 20 s.
 */
const WATCHED_LONGER = { 'late video': 28, 'irregular keyframes': 26 };
/** How much media a player may leave out in all when it catches up with live, in seconds. */
const JUMPED = 1;
/** How much later than its media hls.js may place a part, in seconds: for rounding only. */
const LATE = 1e-5;
/**
 * How much earlier than its media hls.js may place a part, in seconds. hls.js places the first part
 * by decode time, and a frame is decoded one frame before it is shown.
 */
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

/** Watches a stream that has just begun by several deliveries at once. */
async function young(variant, vias, watched) {
  // Each stream has its own server, whose life begins with it.
  const server = await startServer({ config: '' });
  const name = variant === 'demo' ? 'demo' : 'young';
  const publisher = variant === 'demo' ? null : await publishFile(server, variants.files[variant], name);
  try {
    return await Promise.all(vias.map((via) => watchYoung(browser, server, plain, name, via, watched)));
  } finally {
    await publisher?.stop();
    await server.stop();
  }
}

function assertGoesOn(t, via, watched, far, seen) {
  const { first, standings, played, seconds, decoded, behind, complaints } = seen;
  t.diagnostic(
    `${via}: played ${played.toFixed(2)} s in ${seconds.toFixed(2)} s, ${decoded} frames, ` +
      `the first after ${(first / 1000).toFixed(1)} s`,
  );
  assert.deepEqual(longStandings(standings, far), [], `${via}: waited for media`);
  assert.ok(played > watched * 0.9, `${via}: played ${played} s`);
  // A player that a busy machine has held up leaves frames out where it catches up with live. Where
  // hls.js fell behind, it may leave out the rest of a segment.
  if (behind.length === 0)
    assert.ok(decoded > (watched - JUMPED) * 30 * 0.95, `${via}: decoded ${decoded} frames`);
  if (via !== 'plain') assert.deepEqual(complaints, []);
}

/** Checks that hls.js has placed each part where its media are. */
function assertPlaced(t, { placed }) {
  // A page that is far behind loads whole segments. hls.js may have loaded their last parts before,
  // and then notes that their media begin with these.
  const hadParts = ({ kind, sn }, i) =>
    placed.slice(0, i).some((one) => one.kind === kind && one.sn === sn && one.part !== undefined);
  const parts = placed.filter((one, i) => one.part !== undefined || !hadParts(one, i));
  assert.ok(parts.length > 10, `${parts.length} parts`);
  const [early, late] = [Math.min, Math.max].map((most) => most(...parts.map(({ off }) => off)));
  t.diagnostic(`${parts.length} parts, placed ${early * 1000} to ${late * 1000} ms after their media`);
  const wrong = parts.filter(({ off }) => off > LATE || -off > EARLY);
  assert.deepEqual(wrong, [], 'placed elsewhere than its media');
}

// Two streams at a time, each in three pages, are about as much as two processors play.
describe('a young stream', { concurrency: 2 }, () => {
  for (const variant of ['demo', ...Object.keys(VARIANTS)]) {
    test(`${variant}: goes on from its first frame`, async (t) => {
      const vias = ['llhls', 'plain', 'dash'];
      const watched = WATCHED_LONGER[variant] ?? WATCHED;
      const far = variant === 'irregular keyframes' ? FAR : undefined;
      const seen = await young(variant, vias, watched);
      for (const [i, via] of vias.entries()) assertGoesOn(t, via, watched, far, seen[i]);
      assertPlaced(t, seen[vias.indexOf('plain')]);
    });
  }

  test('goes on where hls.js is slow to parse', async (t) => {
    const server = await startServer({ config: '' });
    try {
      // 100 ms are shorter than a part, but not than the last part of an audio segment.
      const seen = await watchYoung(browser, server, plain, 'demo', 'plain', WATCHED, 100);
      assertGoesOn(t, 'plain', WATCHED, undefined, seen);
    } finally {
      await server.stop();
    }
  });
});
