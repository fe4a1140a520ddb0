import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DISTANCES, framesOf, openFrames, placeFrames, RATES } from './frames.mjs';
import { addressOf, isBehind, startPlain } from './plain.mjs';
import { longStandings } from './standings.mjs';
import { openPage, SMALL, startBrowser, startServer, untilEnough } from './support.mjs';
import { AUDIO, FAR, makeVariants, publishFile, untilFirstFrame, VIDEO } from './young.mjs';

/**
 * How far a frame may be from its time in the source, in seconds: times are in milliseconds in FLV,
 * in ticks of 90 kHz in the server, and in microseconds in the browser.
 */
const EXACT = 0.003;
/**
 * Frames that the browser may have decoded and not reported: before the first, or after the last.
 */
const READY = 8;
/** Chromium does not always count the last frame that it decodes before the end of the media. */
const UNCOUNTED = 1;
/**
 * How much a player may skip by jumps for want of media, in seconds. A player that jumps with media
 * ahead is not in want: on a busy machine it falls behind live, and leaves media out.
 */
const JUMPED = 1;
/**
 * The buffer must not have a hole of this length, in seconds. In slow pages hls.js leaves out a
 * part at times.
 */
const HOLE = 0.5;
/** How much all pages play at the same time, in seconds of media. */
const WATCHED = 5;
/** The same where keyframes are far apart: longer than the longest distance, 10 s. */
const WATCHED_FAR = 12;
/**
 * Lengths of the published files, in seconds. The tests stop their publishers after some 25 s; a slow
 * machine takes many times longer. The streams with keyframes far apart are longer, because they begin one
 * test before.
 */
const [LONG, LONGER] = ['120', '240'];
/**
 * Streams that a test plays at the same time. The streams with keyframes far apart come last: they
 * have lasted for a while by then.
 */
const TOGETHER = [
  ['every fifth frame left out', 'one frame a second'],
  ['24, 30, 60 frames a second', 'frames up to 15 ms early or late'],
  Object.keys(DISTANCES),
];
const VIAS = ['llhls', 'dash', 'plain', 'plain-dash'];

let browser;
let plain;
let server;
let made = [];
let files;
/** Publishers of the streams that have begun, by variant. */
const publishers = new Map();

before(async () => {
  made = await Promise.all([makeVariants(RATES, LONG), makeVariants(DISTANCES, LONGER)]);
  files = Object.assign({}, ...made.map(({ files }) => files));
  [browser, plain] = [await startBrowser(), await startPlain()];
  // A test stops a publisher while its pages open. One that is silent for three times `silence` has gone.
  server = await startServer({ config: '[live]\nreconnect = "1s"\nsilence = "1m"\n' });
});

after(async () => {
  plain?.close();
  await browser?.close();
  await stop([...publishers.keys()]);
  await server?.stop();
  await Promise.all(made.map(({ remove }) => remove()));
});

const nameOf = (variant) => variant.replaceAll(/\W+/g, '-');

/** Begins the streams that have not begun. */
function publish(streams) {
  const young = streams.filter((variant) => !publishers.has(variant));
  return Promise.all(
    young.map(async (variant) =>
      publishers.set(variant, await publishFile(server, files[variant], nameOf(variant))),
    ),
  );
}

function stop(streams) {
  return Promise.all(streams.map((variant) => publishers.get(variant)?.stop()));
}

/** Watches each stream by each of VIAS, all at once, from the first frames to the streams' end. */
async function watchAll(streams, watched) {
  await publish(streams);
  const each = streams.flatMap((variant) => VIAS.map((via) => ({ variant, via })));
  const pages = await Promise.all(
    each.map(({ variant, via }) => openFrames(browser, server, plain, nameOf(variant), via)),
  );
  try {
    // The measurement starts when all pages have begun: their start takes all of the machine.
    await Promise.all(pages.map((page) => page.begun()));
    const seen = await Promise.all(pages.map((page) => page.watch(watched)));
    await stop(streams);
    // At the end the browser has shown all frames that it decoded. Only then are counts exact.
    const rest = await Promise.all(pages.map((page) => page.rest()));
    return each.map((which, i) => ({ ...which, seen: { ...seen[i], ...rest[i] } }));
  } finally {
    await stop(streams);
    await Promise.all(pages.map((page) => page.close()));
  }
}

function assertWhole(
  t,
  via,
  source,
  far,
  {
    shown,
    jumps,
    decoded,
    dropped,
    standings,
    behind,
    played,
    seconds,
    span,
    hole,
    holes,
    complaints,
    error,
  },
) {
  const { indices, off } = placeFrames(shown, source);
  const [first] = shown;
  // Number of the source's frames from the first frame shown to the last.
  const has = indices.at(-1) - indices[0] + 1;
  // For each jump: the index of the frame shown before it, and of the one shown after it.
  const jumped = jumps
    .filter(([from, to]) => to !== null && from < shown.length && to > 0)
    .map(([from, to, ahead]) => [Math.max(0, from - 1), Math.min(shown.length - 1, to), ahead]);
  const left = ([from, to]) => {
    let frames = 0;
    for (let i = from; i < to; i++) frames = Math.max(frames, indices[i + 1] - indices[i] - 1);
    return frames;
  };
  const leftFrames = jumped.reduce((sum, jump) => sum + left(jump), 0);
  const leftTime = jumped
    .filter(([from, to, ahead]) => !ahead && from >= span[0] && to <= span[1])
    .filter(([from]) => !isBehind(behind, shown[from].at))
    .reduce((sum, jump) => sum + source[indices[jump[0]] + left(jump)] - source[indices[jump[0]]], 0);
  const stood = standings.map(({ ms, dry }) => `${ms} ms (${dry} dry)`).join(', ') || 'never';
  t.diagnostic(
    `played ${played.toFixed(2)} s in ${seconds.toFixed(2)} s; decoded ${decoded} of ${has} frames, ` +
      `${dropped} dropped, ${shown.length} seen, ${(off * 1000).toFixed(1)} ms off at most; ` +
      `${jumped.length} jumps over ${leftFrames}; hole of ${hole.toFixed(3)} s; stood ${stood}`,
  );
  assert.equal(error, null);
  if (via !== 'plain') assert.deepEqual(complaints, []);
  assert.ok(hole < HOLE, `holes ${JSON.stringify(holes)}, jumps ${JSON.stringify(jumps)}`);
  // The tests of young streams, which play fewer pages at a time, limit unmodified hls.js further.
  const waits = via === 'plain' ? standings.map((one) => ({ ...one, late: Infinity })) : standings;
  assert.deepEqual(longStandings(waits, far), [], 'waited for media');
  assert.ok(off < EXACT, `a frame ${off * 1000} ms from where the source has it`);
  assert.ok(leftTime < JUMPED, `jumped over ${leftTime} s`);
  assert.ok(
    decoded + UNCOUNTED >= has - leftFrames,
    `decoded ${decoded} of ${has}, jumped over ${leftFrames}`,
  );
  // After a jump the browser decodes an unknown number of frames again. Without one the count is
  // exact.
  if (jumped.length === 0) {
    assert.ok(decoded <= has + first.decoded + READY, `decoded ${decoded} of ${has}`);
  }
}

for (const [i, streams] of TOGETHER.entries()) {
  test(`all frames: ${streams.join('; ')}`, async (t) => {
    // The last streams begin one test before theirs: a page then joins between two keyframes.
    if (i === TOGETHER.length - 2) await publish(TOGETHER.at(-1));
    const watched = i === TOGETHER.length - 1 ? WATCHED_FAR : WATCHED;
    for (const { variant, via, seen } of await watchAll(streams, watched)) {
      const source = await framesOf(files[variant]);
      const title = `${variant}, ${via}`;
      await t.test(title, (sub) =>
        assertWhole(sub, via, source, variant in DISTANCES ? FAR : undefined, seen),
      );
    }
  });
}

/**
 * Waits until `live/NAME` on this server has a complete segment, and so many parts of the next.
 * Returns the number of complete segments.
 */
async function untilParts(at, name, least) {
  const parts = (text) => text.split('#EXT-X-PART:').length - 1;
  const enough = (complete) => complete.length > 0 && parts(complete.at(-1)) >= least;
  return (await untilEnough(() => segmentsOf(at, name), enough, `${name} has not so many parts`)).length;
}

/** For each complete segment of `live/NAME`, the playlist from there to the next. */
async function segmentsOf(at, name) {
  const answer = await fetch(`${at.url}/live/${name}/v0/media.m3u8`);
  const [, ...complete] = (await answer.text()).split('#EXTINF:');
  return complete;
}

// The publisher stands still while the pages begin. So none can have waited for the next keyframe.
test('pages that join between keyframes show the newest keyframe before another comes', async () => {
  const publisher = await publishFile(server, files['keyframes 8 s apart'], 'between');
  const pages = [];
  try {
    await untilParts(server, 'between', 15);
    publisher.pause();
    for (const via of ['llhls', 'plain', 'hls', 'push']) {
      const { page } = await openPage(browser, SMALL);
      pages.push(page);
      await page.goto(addressOf(server, plain, 'between', via));
      await untilFirstFrame(page, `between by ${via}`);
    }
  } finally {
    await publisher.stop();
    await Promise.all(pages.map((page) => page.context().close()));
  }
});

// dash.js looks for the live edge by the clock, so the publisher must go on: for 50 s without a
// keyframe.
test('pages of DASH that join between keyframes show a frame before another keyframe comes', async () => {
  const made = await makeVariants(
    { far: [...VIDEO, ...AUDIO, '-g', '3000', '-force_key_frames', '8,58'] },
    '70',
  );
  const far = await startServer({ config: '[live]\nkeyframe_distance = "50s"\nwindow = "5m"\n' });
  const publisher = await publishFile(far, made.files.far, 'far');
  const pages = [];
  try {
    const complete = await untilParts(far, 'far', 15);
    for (const via of ['dash', 'plain-dash']) {
      const { page } = await openPage(browser, SMALL);
      pages.push(page);
      await page.goto(addressOf(far, plain, 'far', via));
      await untilFirstFrame(page, `far by ${via}`);
      assert.equal((await segmentsOf(far, 'far')).length, complete, `${via} waited for a keyframe`);
    }
  } finally {
    await publisher.stop();
    await Promise.all(pages.map((page) => page.context().close()));
    await far.stop();
    await made.remove();
  }
});
