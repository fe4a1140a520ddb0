import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { addressOf, startPlain } from './plain.mjs';
import { startProxy } from './proxy.mjs';
import { pageTests } from './push.mjs';
import { longStandings, standingsOf } from './standings.mjs';
import {
  openPage,
  playOn,
  position,
  putOff,
  SMALL,
  startBrowser,
  startServer,
  stats,
  untilBegun,
  untilCondition,
  untilEnough,
  untilState,
  untilTime,
} from './support.mjs';
import { AUDIO, makeVariants, publishFile, untilFirstFrame, VIDEO } from './young.mjs';

let server;
/**
 * A server of long parts. A page leaves LL-HLS where most parts take longer than they last: on a busy
 * machine a quarter of a second may be too short, because the test sees each request of its page.
 */
let longParts;
const LONG_PART = 0.5;
let browser;

before(async () => {
  [server, longParts] = await Promise.all([
    startServer(),
    startServer({ config: `[live]\npart_target = "${LONG_PART * 1000}ms"\n` }),
  ]);
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await server?.stop();
  await longParts?.stop();
});

const withPage = pageTests(() => browser);

/**
 * Runs in the page. Notes which media between two times the page buffers from now on: a page may
 * forget media that it has shown. `window.missing()` is the length of the others, in seconds, without
 * those that the page jumped over because it was far behind live.
 */
function noteBuffered([from, to]) {
  const STEP = 0.01;
  const had = new Array(Math.round((to - from) / STEP)).fill(false);
  const note = (start, end) => {
    const index = (time) => Math.min(Math.max(Math.round((time - from) / STEP), 0), had.length);
    had.fill(true, index(start), index(end));
  };
  const video = document.querySelector('video');
  let at = video.currentTime;
  video.addEventListener('seeking', () => {
    if (video.currentTime > at + 1) note(at, video.currentTime);
  });
  setInterval(() => {
    const { buffered, currentTime, seeking } = video;
    if (!seeking) at = currentTime;
    for (let i = 0; i < buffered.length; i++) note(buffered.start(i), buffered.end(i));
  }, 20);
  window.missing = () => had.filter((one) => !one).length * STEP;
}

/** The bytes of a part do not come: the request fails, or it is never answered. */
const LOSSES = {
  fails: (route) => route.abort(),
  'is never answered': () => {},
};
/**
 * The time for a page to show new frames after its publisher has returned, in milliseconds. On a
 * quiet machine it takes 2 to 4 s.
 */
const GOES_ON = 60_000;

/**
 * Runs in a page of dash.js alone. Where playback stands for five seconds, it seeks as a viewer would:
 * over the hole, or a little ahead. On a busy machine dash.js may stand for ever where a period begins
 * (docs/player.md, "Where dash.js stands still"). Notes the seeks in `window.helped`.
 */
function seekOn() {
  window.helped = [];
  const video = document.querySelector('video');
  let [time, since] = [-1, performance.now()];
  setInterval(() => {
    const now = performance.now();
    if (video.currentTime !== time) [time, since] = [video.currentTime, now];
    const { buffered } = video;
    if (now - since < 5_000 || buffered.length === 0) return;
    const last = buffered.length - 1;
    const to = time < buffered.start(last) ? buffered.start(last) : time + 0.1;
    window.helped.push([time, to]);
    since = now;
    video.currentTime = to;
  }, 100);
}

/**
 * Waits until a page has played a second more than it has buffered, and decoded a second of frames. Returns how long
 * that took.
 */
async function goOn(page, via) {
  const { played, decoded, ahead } = await page.evaluate(() => {
    const { buffered, currentTime } = document.querySelector('video');
    const end = buffered.length > 0 ? buffered.end(buffered.length - 1) : currentTime;
    const { played, decoded } = window.seen;
    return { played, decoded, ahead: end - currentTime };
  });
  const since = Date.now();
  const more = ([least, before]) => window.seen.played >= least && window.seen.decoded > before;
  await page
    .waitForFunction(more, [played + ahead + 1, decoded + 30], { timeout: GOES_ON + ahead * 1000 })
    .catch(async () => {
      const seen = await page.evaluate(() => {
        const { paused, ended, seeking, readyState } = document.querySelector('video');
        return JSON.stringify({ ...window.seen, paused, ended, seeking, readyState });
      });
      throw new Error(`${via}: played ${played} s, ${ahead} s ahead, later ${seen}`);
    });
  return `${((Date.now() - since) / 1000).toFixed(1)} s, with ${ahead.toFixed(1)} s buffered`;
}

describe('pages go on', { concurrency: 4 }, () => {
  for (const [how, lose] of Object.entries(LOSSES)) {
    const body = async (page, _complaints, t) => {
      const wanted = new Set();
      const losses = [];
      page.on('requestfailed', (request) => {
        const loss = losses.find(({ url, ended }) => url === request.url() && ended === null);
        if (!loss) return;
        loss.ended = (Date.now() - loss.at) / 1000;
        if (how === 'is never answered' && loss.ended < 1) {
          // hls.js has ended it: the page jumped, and needs that part no more. Another one is lost in its place.
          losses.splice(losses.indexOf(loss), 1);
          wanted.add(loss.track);
        }
      });
      // A part whose segment is complete by now may come with it.
      page.on('request', (request) => {
        for (const loss of losses) loss.again ||= [loss.url, loss.segment].includes(request.url());
      });
      // hls.js ends a request that is not answered for so long. So only the page can end it, when playback stands and
      // the request is 1.5 s old.
      await putOff(page, 10_000);
      // This comes first: intercepting requests delays those under way, and so playback.
      await page.route(/\/live\/demo\/[av]0\/\d+\.\d+\.m4s$/, async (route) => {
        const url = route.request().url();
        const [, track] = /([av]0)\/[^/]*$/.exec(url);
        if (!wanted.delete(track)) return route.continue();
        const segment = url.replace(/\.\d+\.m4s$/, '.m4s');
        losses.push({ track, url, segment, at: Date.now(), ended: null, again: false });
        await lose(route);
      });
      await page.goto(`${longParts.url}/watch/live/demo?via=llhls`);
      await untilCondition(page, 'playing');
      await playOn(page, 2);
      const from = await position(page);
      const beyond = from + 4;
      await page.evaluate(noteBuffered, [from, beyond]);
      const seen = () => page.evaluate(() => window.seen);
      const { frozen: before } = await seen();
      for (const track of ['v0', 'a0']) wanted.add(track);
      const areGivenUp = () => wanted.size === 0 && losses.every(({ ended }) => ended !== null);
      await untilEnough(() => losses, areGivenUp, 'not given up');
      await untilTime(page, beyond);
      // It asks again for what never came, once it needs that: a slow page plays far behind live. Where it has media
      // after that, it may go on there.
      const { played } = await seen();
      const isAwaited = () => how === 'is never answered' && losses.some(({ again }) => !again);
      const isOver = (now) => !isAwaited() || now.played >= played + 5;
      await untilEnough(async () => ({ losses, ...(await seen()) }), isOver, 'it does not play');
      const { frozen } = await seen();
      assert.ok(
        !isAwaited() || frozen > 1,
        `not asked for again: ${JSON.stringify(losses)}, frozen for ${frozen} s`,
      );
      const missing = await page.evaluate(() => window.missing());
      const { stallList } = await stats(page);
      const ended = losses.map(({ track, ended }) => `${track} after ${ended.toFixed(1)} s`);
      const stalled = stallList.map(({ seconds }) => seconds.toFixed(2));
      t.diagnostic(`given up ${ended.join(', ')}; stalled ${stalled}; left out ${missing.toFixed(2)} s`);
      // A page that stands, and has media after a part that failed, goes on there instead of waiting for a
      // second request. In slow pages hls.js leaves out another part at times, and of what comes while the page is
      // not run, more.
      const lost = frozen - before;
      assert.ok(missing < 4 * LONG_PART + lost, `left out ${missing} s, not run for ${lost} s`);
      // It is live again, or catches up, which takes a while (play.test.mjs).
      await page.waitForFunction(() => {
        const { latency, targetLatency, playbackRate } = window.headwater.stats();
        return latency !== null && (latency < targetLatency + 1 || playbackRate > 1);
      });
      await page.unrouteAll({ behavior: 'ignoreErrors' });
    };
    withPage(`a part of video and one of audio: each ${how}`, body, SMALL);
  }

  // A part of the demo lasts a quarter of a second.
  const body = async (page) => {
    const proxy = await startProxy(server.url, 300);
    try {
      await page.goto(`${proxy.url}/watch/live/demo?via=llhls`);
      await page.getByText('too slow for LL-HLS').waitFor();
      await untilCondition(page, 'playing');
      const { via, currentTime } = await stats(page);
      assert.equal(via, 'dash');
      await untilTime(page, currentTime + 1);
      const since = await page.evaluate(() => performance.now());
      await playOn(page, 6);
      assert.deepEqual(longStandings(await standingsOf(page, since)), []);
    } finally {
      await proxy.stop();
    }
  };
  withPage('a page of LL-HLS far away goes over to DASH', body, SMALL);

  // hls.js itself jumps three target durations behind live, wherever the buffer ends. Here that is 36 s behind.
  test('a page far behind live jumps over no media that it needs', async (t) => {
    const origin = await startServer({
      config: '[live]\ntarget_duration = "12s"\nwindow = "1m"\npart_target = "500ms"\n',
    });
    const { page } = await openPage(browser, SMALL);
    const held = [];
    let holds = false;
    await page.route('**/a0/*.m4s', async (route) => {
      if (holds) await new Promise((release) => held.push(release));
      await route.continue();
    });
    try {
      await page.goto(`${origin.url}/watch/live/demo?via=llhls`);
      await untilBegun(page);
      await page.evaluate(async () => {
        const video = document.querySelector('video');
        // The page plays what is paused before it has noticed that it plays. The event `playing` comes before this one.
        await new Promise((played) => {
          video.addEventListener('timeupdate', () => video.played.length > 0 && played());
        });
        window.jumps = [];
        let at = video.currentTime;
        setInterval(() => {
          if (!video.seeking) at = video.currentTime;
        }, 10);
        video.addEventListener('seeking', () => window.jumps.push([at, video.currentTime]));
        video.pause();
      });
      const until = (enough, what) => untilEnough(() => stats(page), enough, what);
      // The page jumps only if it has 6.5 s left. With 20 s, a busy page may begin to play late.
      await until(({ buffer }) => buffer > 20, 'the buffer does not grow');
      holds = true;
      await until(({ latency, buffer }) => latency > buffer + 3, 'the audio is not behind');
      await page.evaluate(() => {
        // hls.js may have jumped, if the buffer grew slowly.
        window.jumps = [];
        return document.querySelector('video').play();
      });
      const isFar = (jumps) => jumps.some(([from, to]) => to > from + 5);
      const jumps = await untilEnough(() => page.evaluate(() => window.jumps), isFar, 'no jump');
      holds = false;
      for (const release of held) release();
      const [from, to] = jumps.find(([from, to]) => to > from + 5);
      await untilTime(page, to + 2);
      const ranges = await page.evaluate(() => {
        const { buffered } = document.querySelector('video');
        return Array.from({ length: buffered.length }, (_, i) => [buffered.start(i), buffered.end(i)]);
      });
      assert.equal((await stats(page)).via, 'llhls');
      t.diagnostic(`from ${from} to ${to}, buffered ${JSON.stringify(ranges)}`);
      assert.ok(
        ranges.some(([start, end]) => start <= from && end > to),
        `left out media: from ${from} to ${to}, buffered ${JSON.stringify(ranges)}`,
      );
    } finally {
      await page.context().close();
      await origin.stop();
    }
  });

  test('a page that is paused while it waits for media stays paused', async () => {
    const origin = await startServer({ config: '[live]\ntarget_duration = "2s"\nsegment_target = "1s"\n' });
    const { page } = await openPage(browser, SMALL);
    let holds = false;
    await page.route('**/live/demo/**/*.m4s', async (route) => {
      if (!holds) return route.continue();
    });
    try {
      await page.goto(`${origin.url}/watch/live/demo?via=hls`);
      await untilBegun(page);
      await playOn(page, 1);
      holds = true;
      // The page has noticed that it waits. It does not look for another source while it is paused.
      const source = await page.evaluate(
        () =>
          new Promise((resolve) => {
            const video = document.querySelector('video');
            video.addEventListener('waiting', () => setTimeout(() => resolve(video.src)), { once: true });
          }),
      );
      await page.evaluate(() => document.querySelector('video').pause());
      // A page that waits tries another source after 8 s.
      const passed = () => page.evaluate(() => performance.now());
      const enough = (await passed()) + 10_000;
      await untilEnough(passed, (now) => now > enough, 'no time passes');
      const { paused, src } = await page.evaluate(() => {
        const { paused, src } = document.querySelector('video');
        return { paused, src };
      });
      assert.deepEqual({ paused, src }, { paused: true, src: source });
    } finally {
      await page.context().close();
      await origin.stop();
    }
  });

  test('a publisher returns without its audio', async (t) => {
    const vias = ['llhls', 'dash', 'plain', 'plain-dash'];
    const made = await makeVariants({ returns: [...VIDEO, ...AUDIO, '-g', '30'] }, '60');
    const [origin, plain] = [await startServer({ config: '[live]\n' }), await startPlain()];
    let publisher = await publishFile(origin, made.files.returns, 'returns', ['-stream_loop', '-1']);
    const pages = [];
    try {
      for (const via of vias) {
        const { page } = await openPage(browser, SMALL);
        pages.push(page);
        await page.goto(addressOf(origin, plain, 'returns', via));
      }
      await Promise.all(pages.map((page, i) => untilFirstFrame(page, vias[i])));
      await Promise.all(pages.map(async (page) => untilTime(page, (await position(page)) + 2)));
      const alone = pages[vias.indexOf('plain-dash')];
      await publisher.stop();
      await untilState(origin.url, 'live/returns', 'offline');
      publisher = await publishFile(origin, made.files.returns, 'returns', ['-stream_loop', '-1'], ['-an']);
      await alone.evaluate(seekOn);
      const took = await Promise.all(pages.map((page, i) => goOn(page, vias[i])));
      for (const [i, via] of vias.entries()) t.diagnostic(`${via}: ${took[i]}`);
      t.diagnostic(`plain-dash was helped: ${await alone.evaluate(() => JSON.stringify(window.helped))}`);
    } finally {
      await Promise.all(pages.map((page) => page.context().close()));
      plain.close();
      // The server waits for the answers that it holds back until there are newer media.
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      await origin.stop();
      await publisher.stop();
      await made.remove();
    }
  });

  // Where such a page begins, behind live, the publisher has sent nothing.
  test('pages that open while a publisher is away, or is just back, play', async (t) => {
    const made = await makeVariants({ away: [...VIDEO, ...AUDIO, '-g', '30'] }, '60');
    const [origin, plain] = [await startServer({ config: '[live]\n' }), await startPlain()];
    let publisher = await publishFile(origin, made.files.away, 'away', ['-stream_loop', '-1']);
    const pages = [];
    const open = async (via) => {
      const { page } = await openPage(browser, SMALL);
      pages.push([page, via]);
      await page.goto(addressOf(origin, plain, 'away', via));
    };
    try {
      await open('plain');
      await untilFirstFrame(pages[0][0], 'plain');
      await publisher.stop();
      await untilState(origin.url, 'live/away', 'offline');
      // As long as an encoder takes to connect again. A shorter time hides the fault.
      await new Promise((resolve) => setTimeout(resolve, 4_000));
      await open('plain-dash');
      publisher = await publishFile(origin, made.files.away, 'away', ['-stream_loop', '-1']);
      await Promise.all(['dash', 'plain-dash', 'llhls'].map(open));
      // That helps nobody who finds no media.
      const alone = pages.filter(([, via]) => via === 'plain-dash').map(([page]) => page);
      await Promise.all(alone.map((page) => page.evaluate(seekOn)));
      const began = Date.now();
      const played = ([page, via]) =>
        playOn(page, 3).then(() => t.diagnostic(`${via}: ${((Date.now() - began) / 1000).toFixed(1)} s`));
      await Promise.all(pages.map(played));
    } finally {
      await Promise.all(pages.map(([page]) => page.context().close()));
      plain.close();
      await origin.stop();
      await publisher.stop();
      await made.remove();
    }
  });
});
