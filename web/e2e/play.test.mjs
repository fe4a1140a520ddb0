import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { keep, lateStalls, openPage, startBrowser, startServer, stats, untilCondition } from './support.mjs';

/** How long each delivery is watched, in seconds. */
const WATCHED = 20;

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

/** Watches live/demo and returns the figures, read twice a second. */
async function watch(via) {
  const { page, complaints } = await openPage(browser);
  await page.goto(`${server.url}/watch/live/demo${via === 'llhls' ? '' : `?via=${via}`}`);
  await untilCondition(page, 'playing');
  const readings = [];
  const until = Date.now() + WATCHED * 1000;
  while (Date.now() < until) {
    readings.push(await stats(page));
    await page.waitForTimeout(500);
  }
  await keep(page, `watch-${via}`);
  const last = await stats(page);
  const quality = await page.evaluate(() => {
    const { totalVideoFrames, droppedVideoFrames } = document
      .querySelector('video')
      .getVideoPlaybackQuality();
    return { totalVideoFrames, droppedVideoFrames };
  });
  await page.context().close();
  return { readings, last, quality, complaints };
}

function assertPlayedWell(t, { readings, last, quality, complaints }) {
  const [first] = readings;
  const { firstFrame } = last.moments;
  const settled = readings.slice(-16).map(({ latency }) => latency);
  t.diagnostic(
    `first frame ${Math.round(firstFrame)} ms after navigation (script ran at ${Math.round(last.moments.opened)} ms)`,
  );
  t.diagnostic(
    `latency ${Math.min(...settled).toFixed(2)}–${Math.max(...settled).toFixed(2)} s over the last 8 s, target ${last.targetLatency} s`,
  );
  t.diagnostic(`${quality.totalVideoFrames} frames, ${quality.droppedVideoFrames} dropped; ${last.engine}`);

  assert.deepEqual(complaints, []);
  const played = last.currentTime - first.currentTime;
  assert.ok(played > WATCHED * 0.95, `played ${played} s in ${WATCHED} s`);
  for (let i = 1; i < readings.length; i++) {
    assert.ok(readings[i].currentTime > readings[i - 1].currentTime, `stood still at reading ${i}`);
  }
  assert.deepEqual(lateStalls(last), [], 'stalls after the first second');
  const expected = WATCHED * (last.frameRate ?? 25);
  assert.ok(quality.totalVideoFrames > expected * 0.9, `${quality.totalVideoFrames} frames of ${expected}`);
  assert.ok(last.width > 0 && last.height > 0 && last.bitrate > 0, 'resolution and bitrate are known');
  assert.ok(
    settled.every((latency) => latency !== null && latency > 0),
    `latency known: ${settled}`,
  );
  return settled;
}

describe('live/demo', () => {
  test('plays over LL-HLS and DASH side by side', async (t) => {
    const [llhls, dash] = await Promise.all([watch('llhls'), watch('dash')]);
    await t.test('LL-HLS settles within 1.5 s of live', (sub) => {
      const settled = assertPlayedWell(sub, llhls);
      assert.ok(Math.min(...settled) < 1.5, `latency ${settled}`);
    });
    await t.test('DASH holds the latency of its service description', (sub) => {
      const settled = assertPlayedWell(sub, dash);
      const target = dash.last.targetLatency;
      assert.ok(target > 0, `target ${target}`);
      assert.ok(Math.min(...settled) < target + 0.5, `latency ${settled}, target ${target}`);
    });
  });

  test('plays over HLS without low latency', async (t) => {
    const { page, complaints } = await openPage(browser);
    await page.goto(`${server.url}/watch/live/demo?via=hls`);
    await untilCondition(page, 'playing');
    await page.waitForTimeout(5_000);
    const now = await stats(page);
    t.diagnostic(
      `first frame ${Math.round(now.moments.firstFrame)} ms, latency ${now.latency?.toFixed(2)} s`,
    );
    assert.deepEqual(lateStalls(now), []);
    assert.ok(now.currentTime > 4 && now.buffer > 1);
    assert.deepEqual(complaints, []);
    await page.context().close();
  });

  test('has its first frame soon when nothing else is played', async (t) => {
    const times = [];
    for (let i = 0; i < 3; i++) {
      const { page } = await openPage(browser);
      await page.goto(`${server.url}/watch/live/demo`);
      await untilCondition(page, 'playing');
      times.push(Math.round((await stats(page)).moments.firstFrame));
      await page.context().close();
    }
    t.diagnostic(`first frame after ${times.join(', ')} ms`);
    // The goal, a second, is for docs/performance.md: a test cannot know how busy the machine is.
    assert.ok(times.every((time) => time > 0));
  });
});
