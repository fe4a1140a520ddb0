import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { startProxy } from './proxy.mjs';
import { pageTests, startEmbed } from './push.mjs';
import { makeRenditions, publish, publishTogether } from './renditions.mjs';
import { longStandings, standingsOf } from './standings.mjs';
import { stoppedWithin } from './stops.mjs';
import {
  assertAccessible,
  keep,
  openPage,
  playOn,
  position,
  startBrowser,
  startServer,
  stats,
  untilCondition,
  untilEnough,
  untilPlayed,
  untilTime,
} from './support.mjs';
import { startTabs } from './tabs.mjs';

/** Longest gap between shown frames, in seconds. A missing part is a gap of 0.2 s. */
const GAP = 0.1;
/**
 * The same within NEAR frames of a place where the browser dropped frames, stood, or began another decoder: there it
 * leaves out others that it counts nowhere.
 */
const BUSY_GAP = 0.5;
const NEAR = 15;
/** A screen that shows nothing new for so many milliseconds stands. */
const STANDS = 150;
const FRAME = 1 / 30;
/** How long a page is kept busy, in seconds. */
const BUSY = 6;

let clips;
let server;
let browser;
let embed;

before(async () => {
  clips = await makeRenditions(60);
  server = await startServer();
  browser = await startBrowser();
  embed = await startEmbed(server.url);
});

after(async () => {
  await browser?.close();
  embed?.close();
  await server?.stop();
  await clips?.remove();
});

const clip = (name) => [name, join(clips.root, `${name}.mp4`)];

const withPage = pageTests(() => browser);
const play = (...what) => embed.play(...what);

async function watch(page, stream = 'live/demo', url = server.url) {
  await page.goto(`${url}/watch/${stream}?via=push`);
  await untilCondition(page, 'playing');
}

/** A worker that says nothing for two seconds is given up, which a busy machine may cause. */
async function watchInWorker(page) {
  for (let tries = 0; tries < 3; tries++) {
    await watch(page);
    if ((await stats(page)).engine === 'MediaSource in a worker') return;
  }
  throw new Error('no worker in three tries');
}

/** The page's figures, for how long it was not run so far (standings.mjs), and when that was read. */
const figures = async (page) => {
  const now = await page.evaluate(() => ({ ...window.headwater.stats(), frozen: window.seen.frozen }));
  return { ...now, at: Date.now() };
};

/** For how many seconds between two readings the page was not run, or a process that brings media. */
const lostBetween = (before, now) => now.frozen - before.frozen + stoppedWithin(before.at, now.at) / 1000;

/** Makes the page note each frame that is shown from now on. */
function noteFrames(page) {
  return page.evaluate(() => {
    const video = document.querySelector('video');
    window.frames = [];
    // Where a busy machine has made it late, the player jumps through media that it has.
    window.jumps = [];
    video.addEventListener('seeking', () => {
      const [from, to] = [window.frames.at(-1)?.mediaTime ?? 0, video.currentTime];
      const { buffered } = video;
      for (let i = 0; i < buffered.length; i++) {
        if (buffered.start(i) <= from && to <= buffered.end(i)) window.jumps.push([from, to]);
      }
    });
    const note = (now, { mediaTime, presentedFrames, width }) => {
      const { droppedVideoFrames: dropped, totalVideoFrames: decoded } = video.getVideoPlaybackQuality();
      const before = window.frames.at(-1)?.mediaTime ?? mediaTime;
      const { buffered } = video;
      const ends = Array.from({ length: buffered.length }, (_, i) => buffered.end(i));
      // Media follow a hole. The last end is where the newest media are: a machine without time shows pictures there.
      const isHole = ends.slice(0, -1).some((end) => before < end && end < mediaTime);
      window.frames.push({ now, mediaTime, presented: presentedFrames, width, dropped, decoded, isHole });
      video.requestVideoFrameCallback(note);
    };
    video.requestVideoFrameCallback(note);
  });
}

/**
 * Gaps between the shown frames. Each hole in the buffered media is one: a missing part leaves a hole up to the
 * next keyframe, because frames after it cannot be decoded (MSE 3.5.8). Frames that were shown without a call to
 * this page, and frames that a busy machine was too slow to show, are not gaps: the browser counts both. While it
 * paints nothing at all, it counts only that it decodes them. Jumps of the player through media that it has are no gaps
 * either.
 */
async function gapsOf(page) {
  const { frames, jumps } = await page.evaluate(() => ({ frames: window.frames, jumps: window.jumps }));
  const isBusy = (i) => {
    const near = frames.slice(Math.max(0, i - NEAR), i + 1 + NEAR);
    return near.slice(1).some(({ now, width, dropped }, at) => {
      const before = near[at];
      return dropped > before.dropped || width !== before.width || now - before.now > STANDS;
    });
  };
  const isJump = ({ mediaTime }, before) =>
    jumps.some(([from, to]) => from <= mediaTime && to >= before.mediaTime);
  return frames.slice(1).flatMap((frame, i) => {
    const before = frames[i];
    const passed = frame.mediaTime - before.mediaTime;
    // The browser counts dropped frames when it notices them, a little before or after.
    const dropped = (frames[i + 4] ?? frames.at(-1)).dropped - (frames[i - 2] ?? frames[0]).dropped;
    const shown = frame.presented - before.presented + dropped;
    const decoded = frame.now - before.now > STANDS ? frame.decoded - before.decoded : 0;
    const gap = FRAME * (1 + Math.round(passed / FRAME) - Math.max(shown, decoded));
    return (gap > (isBusy(i) ? BUSY_GAP : GAP) && !isJump(frame, before)) || frame.isHole || passed < 0
      ? [{ at: frame.mediaTime, passed, gap, width: frame.width, isHole: frame.isHole }]
      : [];
  });
}

const quality = (page) => page.getByRole('combobox', { name: 'Quality' });

// These tests run one after the other: they measure playback, which the decoding of another page
// would disturb.
describe('renditions by push', () => {
  withPage('shows no gap through two changes of rendition', async (page, complaints, t) => {
    const stop = await publishTogether(server, 'live/two', [clip('high'), clip('low')]);
    try {
      await watch(page, 'live/two');
      assert.deepEqual(
        (await quality(page).locator('option').allTextContents()).map((label) => label.split(',')[0]),
        ['By the server', '360p', '180p'],
      );
      const until = (width) =>
        page.waitForFunction((wanted) => document.querySelector('video').videoWidth === wanted, width);
      await quality(page).selectOption({ index: 1 });
      await until(640);
      await playOn(page, 1);
      await noteFrames(page);
      await untilTime(page, (await position(page)) + 3);
      await quality(page).selectOption({ index: 2 });
      await until(320);
      await untilTime(page, (await position(page)) + 3);
      await quality(page).selectOption({ index: 1 });
      await until(640);
      await page.waitForFunction(() => window.frames.at(-1)?.mediaTime - window.frames[0]?.mediaTime > 12);
      const frames = await page.evaluate(() => window.frames);
      const waits = frames.slice(1).map(({ now }, i) => now - frames[i].now);
      const last = await stats(page);
      await assertAccessible(page);
      await keep(page, 'watch-push-renditions');
      t.diagnostic(
        `${frames.length} pictures, at most ${Math.round(Math.max(...waits))} ms apart on the screen; ` +
          `${last.droppedFrames} of ${last.decodedFrames} dropped`,
      );
      assert.deepEqual(await gapsOf(page), []);
      assert.deepEqual(longStandings(await standingsOf(page)), []);
      assert.deepEqual(complaints, []);
    } finally {
      stop();
    }
  });

  withPage('goes on through a change of codec', async (page, complaints) => {
    const stop = await publish(server, 'live/codecs', [clip('high'), clip('av1')]);
    try {
      await watch(page, 'live/codecs');
      // After a slow start the player jumps ahead.
      await untilTime(page, (await position(page)) + 1.5);
      await noteFrames(page);
      for (const [index, codec, width] of [
        [2, 'av01', 320],
        [1, 'avc1', 640],
      ]) {
        await quality(page).selectOption({ index });
        await page.waitForFunction((wanted) => window.frames.at(-1)?.width === wanted, width);
        await untilTime(page, (await position(page)) + 2);
        assert.match((await stats(page)).codec, new RegExp(`^${codec}`));
      }
      await page.waitForFunction(() => window.headwater.stats().latency < 1);
      assert.deepEqual(await gapsOf(page), []);
      assert.deepEqual(complaints, []);
    } finally {
      stop();
    }
  });
});

// Each measures the distance to live, and one keeps a processor busy.
describe('live by push', { concurrency: 2 }, () => {
  withPage('plays close behind live, in a worker', async (page, complaints, t) => {
    await watchInWorker(page);
    // After a slow start the player catches up.
    await untilTime(page, (await position(page)) + 2);
    await page.waitForFunction(() => window.headwater.stats().latency < 1);
    const readings = [];
    const played = () => page.evaluate(() => window.seen.played);
    const enough = (await played()) + 5;
    const read = async () => readings.push(await stats(page)) && played();
    // After each stall, which a busy machine may cause, the player keeps a little more distance for a minute.
    const isClose = () => readings.some(({ latency }) => latency < 1);
    await untilEnough(read, (now) => now >= enough && isClose(), 'it does not play close behind live', 500);
    const last = readings.at(-1);
    const latencies = readings.map(({ latency }) => latency);
    t.diagnostic(`first frame ${Math.round(last.moments.firstFrame)} ms after navigation`);
    t.diagnostic(`latency ${Math.min(...latencies).toFixed(2)}–${Math.max(...latencies).toFixed(2)} s`);
    assert.equal(last.engine, 'MediaSource in a worker');
    assert.deepEqual(longStandings(await standingsOf(page)), []);
    assert.ok(Math.min(...latencies) > 0.1, `latency ${latencies}`);
    assert.ok(readings.every(({ playbackRate }) => playbackRate >= 0.97));
    assert.ok(last.currentTime - readings[0].currentTime > 3, 'it plays');
    const { media, overhead } = last.traffic;
    assert.ok(media > 500_000 && overhead > 100 && overhead < media / 500, `${overhead} bytes for ${media}`);
    assert.match(
      await page.getByTestId('overhead').textContent(),
      /^[\d,]+ bytes0\.\d+ % of (\d+\.\d MB|\d+ kB)$/,
    );
    assert.match(await page.getByTestId('bitrate').textContent(), /rendition v0$/);
    assert.equal(await quality(page).count(), 0, 'there is one rendition only');
    await assertAccessible(page);
    await keep(page, 'watch-push');
    assert.deepEqual(complaints, []);
  });

  withPage('does not mind a page that is busy', async (page) => {
    await watchInWorker(page);
    await playOn(page, 3);
    await page.waitForFunction(() => window.headwater.stats().latency < 1);
    const before = await figures(page);
    // For six seconds that it runs: where the machine does not run the page for a while, these do not count.
    const frames = await page.evaluate((seconds) => {
      const video = document.querySelector('video');
      const decoded = () => video.getVideoPlaybackQuality().totalVideoFrames;
      const begun = decoded();
      let [ran, at] = [0, performance.now()];
      while (ran < seconds * 1000) {
        const now = performance.now();
        if (now - at < 5) ran += now - at;
        at = now;
      }
      return decoded() - begun;
    }, BUSY);
    // A player in the page has less than a second of media for this time. A busy machine may cost some.
    const stopped = stoppedWithin(before.at, Date.now()) / 1000;
    assert.ok(frames * FRAME > BUSY - 3 - stopped, `${frames} frames meanwhile, stopped for ${stopped} s`);
    await untilTime(page, before.currentTime + 5.9);
    const now = await figures(page);
    const lost = lostBetween(before, now) - BUSY;
    const stood = now.stallSeconds - before.stallSeconds;
    assert.ok(stood < 3 + lost, `stood ${stood} s, not run for ${lost} s`);
    assert.ok(now.latency < before.latency + 3 + lost, `latency ${before.latency}, then ${now.latency}`);
  });

  test('is live again after the connection was lost', async (t) => {
    const proxy = await startProxy(server.url);
    const { page } = await openPage(browser);
    try {
      await watch(page, 'live/demo', proxy.url);
      await playOn(page, 1.5);
      await proxy.drop();
      await page.waitForFunction(() => window.headwater.stats().condition !== 'playing');
      await page.waitForTimeout(1_000);
      await proxy.restore();
      await untilCondition(page, 'playing');
      await page.waitForFunction(() => window.headwater.stats().latency < 0.8);
      // After 6 s of playback, a connection that is lost and at once restored costs little.
      await playOn(page, 6);
      const before = await figures(page);
      await proxy.restore();
      // These media came over the new connection.
      await untilTime(page, before.currentTime + before.buffer + 1);
      await page.waitForFunction(() => window.headwater.stats().latency < 0.8);
      const now = await figures(page);
      const [stood, lost] = [now.stallSeconds - before.stallSeconds, lostBetween(before, now)];
      t.diagnostic(`${stood.toFixed(2)} s lost; latency ${now.latency.toFixed(2)} s`);
      assert.ok(stood < 3 + lost, `stood ${stood} s, not run for ${lost} s`);
    } finally {
      await page.context().close();
      await proxy.stop();
    }
  });

  test('goes on in a tab behind another, and is live when that is gone', async () => {
    const tabs = await startTabs();
    try {
      const tab = await tabs.open(`${server.url}/watch/live/demo?via=push`);
      await tab.until('window.headwater?.stats().condition === "playing"');
      const all = '({ ...headwater.stats(), frozen: seen.frozen, visibility: document.visibilityState })';
      const now = async () => ({ ...(await tab.evaluate(all)), at: Date.now() });
      // A hidden tab with audio goes on playing.
      await tab.evaluate('document.querySelector("video").muted = false');
      const other = await tabs.open('about:blank');
      await tab.until('document.visibilityState === "hidden"');
      const listen = async () => {
        const before = await now();
        await tab.until(`headwater.stats().currentTime > ${before.currentTime + 5}`);
        const behind = await now();
        const stood = behind.stallSeconds - before.stallSeconds;
        return { before, behind, stood, lost: lostBetween(before, behind) };
      };
      // The browser runs a page with audio as often as before. Where the page was not run for half of the time, that
      // was the machine: in the next seconds it is.
      const isRun = ({ before, behind, lost }) => lost < (behind.currentTime - before.currentTime) / 2;
      const { behind, stood, lost } = await untilEnough(listen, isRun, 'the tab is not run');
      assert.equal(behind.visibility, 'hidden');
      assert.ok(stood < 1 + lost, `stood ${stood} s, not run for ${lost} s`);
      assert.ok(behind.latency < 2 + stood + lost, `latency ${behind.latency} s, not run for ${lost} s`);
      await tab.until('headwater.stats().latency < 2');
      // The browser pauses a video without audio in a hidden tab.
      await tab.evaluate('document.querySelector("video").muted = true');
      await other.evaluate('new Promise((resolve) => setTimeout(resolve, 12_000))');
      await tab.toFront();
      await tab.until('document.visibilityState === "visible" && headwater.stats().latency < 0.8');
    } finally {
      await tabs.close();
    }
  });

  test('takes its place in a stream that begins anew', async () => {
    const proxy = await startProxy(server.url);
    const { page } = await openPage(browser);
    let young;
    try {
      await watch(page, 'live/demo', proxy.url);
      await untilTime(page, 60);
      // The proxy leads to another server, whose stream is as young as after a restart.
      young = await startServer({ config: '[live]\n' });
      const { currentTime } = await stats(page);
      await proxy.restore(young.url);
      await page.waitForFunction((before) => {
        const { condition, latency, currentTime } = window.headwater.stats();
        return condition === 'playing' && latency < 0.8 && currentTime < before - 15;
      }, currentTime);
      const { currentTime: place } = await stats(page);
      await untilTime(page, place + 1);
    } finally {
      await page.context().close();
      await proxy.stop();
      await young?.stop();
    }
  });

  withPage('keeps its place over a pause, and goes to live when asked', async (page, complaints) => {
    await watch(page);
    await playOn(page, 1);
    await page.getByRole('button', { name: 'Pause' }).click();
    const { currentTime } = await stats(page);
    await page.waitForTimeout(3_000);
    await page.getByRole('button', { name: 'Play' }).click();
    // A player that goes to live leaves out what came meanwhile.
    await untilPlayed(page, currentTime, currentTime + 1.5);
    const now = await stats(page);
    assert.ok(now.latency > 2.5, `latency ${now.latency}`);
    await page.getByRole('button', { name: 'Go to live' }).click();
    await page.waitForFunction(() => window.headwater.stats().latency < 0.8);
    assert.deepEqual(complaints, []);
  });
});

describe('the module in a page of another origin', { concurrency: 2 }, () => {
  withPage('plays without a worker, and leaves nothing behind', async (page, complaints) => {
    await play(page, '/live/demo/push', { reserve: { least: 0.2 } });
    await page.waitForFunction(() =>
      window.heard.some(([name, { latency }]) => name === 'latency' && latency > 0),
    );
    await page.waitForFunction(() => document.querySelector('video').currentTime > 3);
    // The player makes up for the delay of a slow start: it jumps, or plays at 1.05 if the delay is
    // small.
    await page.waitForFunction(() => {
      const { latency } = window.player.stats();
      return latency > 0.2 && latency < 1;
    });
    await page.waitForFunction(() =>
      window.heard.some(
        ([name, { messages, mediaBytes }]) => name === 'stats' && messages > 5 && mediaBytes > 0,
      ),
    );
    const { heard, stats } = await page.evaluate(() => ({
      heard: window.heard,
      stats: window.player.stats(),
    }));
    assert.equal(stats.worker, false);
    assert.equal(heard[0][0], 'open');
    assert.equal(heard[0][1].renditions[0].name, 'v0');
    assert.deepEqual(heard.find(([name]) => name === 'rendition')[1], {
      name: 'v0',
      codecs: 'avc1.64001f, mp4a.40.2',
    });
    const left = await page.evaluate(() => {
      window.player.destroy();
      const { src, srcObject, readyState, disableRemotePlayback } = document.querySelector('video');
      return { src, srcObject, readyState, disableRemotePlayback };
    });
    assert.deepEqual(left, { src: '', srcObject: null, readyState: 0, disableRemotePlayback: false });
    // The next player of the same element has the element for itself.
    await page.evaluate(() => {
      const { player } = window;
      window.player = new player.constructor(player.video, player.wish.url);
      player.destroy();
    });
    await untilTime(page, 1);
    assert.deepEqual(complaints, []);
  });

  test('is there with its types, for any page', async () => {
    for (const [name, type] of [
      ['push.js', 'text/javascript'],
      ['push.d.ts', 'text/plain'],
    ]) {
      const { status, headers } = await fetch(`${server.url}/player/${name}`);
      assert.equal(status, 200);
      assert.equal(headers.get('content-type'), type);
      assert.equal(headers.get('access-control-allow-origin'), '*');
      const again = await fetch(`${server.url}/player/${name}`, {
        headers: { 'If-None-Match': headers.get('etag') },
      });
      assert.equal(again.status, 304);
      assert.equal(again.headers.get('access-control-allow-origin'), '*');
    }
  });

  withPage('stays where the viewer goes, and goes on as it was from another source', async (page) => {
    await play(page, '/live/demo/push', {}, { autoplay: 'no' });
    await page.evaluate(() => window.player.play());
    await page.waitForFunction(() => {
      const { buffered, currentTime } = document.querySelector('video');
      return buffered.length > 0 && currentTime > buffered.start(0) + 2.5;
    });
    const back = await page.evaluate(() => {
      const video = document.querySelector('video');
      video.currentTime -= 2;
      return video.currentTime;
    });
    await untilTime(page, back + 1);
    const { latency } = await page.evaluate(() => window.player.stats());
    assert.ok(latency > 2, `latency ${latency}`);
    await page.evaluate(() => window.player.goLive());
    await page.waitForFunction(() => window.player.stats().latency < 0.8);

    await page.evaluate(() => {
      const video = document.querySelector('video');
      window.sources = [video.src];
      const note = () => {
        if (video.src && !window.sources.includes(video.src)) window.sources.push(video.src);
      };
      new MutationObserver(note).observe(video, { attributes: true, attributeFilter: ['src'] });
    });
    const renew = () =>
      page.evaluate(() => document.querySelector('video').dispatchEvent(new Event('error')));
    const untilSource = (count) =>
      page.waitForFunction(
        (wanted) => window.sources.length === wanted && window.player.stats().buffer > 0,
        count,
      );
    await renew();
    await untilSource(2);
    await untilTime(page, (await position(page)) + 0.5);
    await page.evaluate(() => {
      // This attribute alone would play any new source.
      document.querySelector('video').autoplay = true;
      window.player.pause();
    });
    await renew();
    await untilSource(3);
    assert.ok(await page.evaluate(() => document.querySelector('video').paused));
  });

  withPage(
    'does without a worker that says nothing, and with listeners that fail',
    async (page, complaints) => {
      await play(page, '/live/demo/push', { worker: '/silent.js' });
      await untilTime(page, 1);
      assert.equal((await page.evaluate(() => window.player.stats())).worker, false);
      await page.evaluate(() => {
        window.thrown = 0;
        window.player.on('stats', () => {
          window.thrown += 1;
          throw new Error('of the page');
        });
      });
      await page.waitForFunction(() => window.thrown > 4);
      await untilTime(page, (await position(page)) + 0.5);
      assert.match(complaints[0], /of the page/);
    },
  );

  test('leaves a connection on which nothing comes any more', async () => {
    const own = await startServer({ config: '[push]\nping_interval = "1s"\n' });
    const proxy = await startProxy(own.url);
    const { page } = await openPage(browser);
    try {
      await play(page, `${proxy.url}/live/demo/push`);
      await untilTime(page, 3);
      await proxy.mute();
      await page.waitForFunction(() => window.heard.some(([name]) => name === 'reconnecting'));
      const lost = await page.evaluate(() => window.heard.find(([name]) => name === 'reconnecting')[1]);
      assert.equal(lost.reason, 'the server is silent');
      await untilTime(page, (await position(page)) + 3);
      assert.ok(await page.evaluate(() => window.heard.every(([name]) => name !== 'error')));
    } finally {
      await page.context().close();
      await proxy.stop();
      await own.stop();
    }
  });

  withPage('says that there is no such stream', async (page) => {
    await play(page, '/live/nothing/push');
    await page.waitForFunction(() => window.heard.some(([name]) => name === 'error'));
    assert.deepEqual(await page.evaluate(() => window.heard), [
      ['error', { code: 'not-found', message: 'the server answers 404' }],
    ]);
  });

  withPage('keeps to a rendition, and chooses another when told', async (page, complaints) => {
    const stop = await publish(server, 'live/kept', [clip('high'), clip('low')]);
    try {
      await play(page, '/live/kept/push', { rendition: 'low' });
      const until = (width) =>
        page.waitForFunction((wanted) => document.querySelector('video').videoWidth === wanted, width);
      await until(320);
      await page.evaluate(() => window.player.setRendition('high'));
      await until(640);
      assert.deepEqual(complaints, []);
    } finally {
      stop();
    }
  });
});
