// Which frames of a stream a page plays, against those that its source has.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { openPage, within } from './support.mjs';
import { addressOf, observe, PICTURES, SOUND, STANDS } from './young.mjs';

const EVERY_TWO_SECONDS = ['-force_key_frames', 'expr:gte(t,n_forced*2)', '-g', '1000'];
const select = (frames) => ['-vf', `select='${frames}'`, '-fps_mode', 'vfr', ...EVERY_TWO_SECONDS];
const at = (rate) => ['-f', 'lavfi', '-i', `testsrc2=size=320x180:rate=${rate}`];

/** Frames at changing distances, or few. */
export const RATES = {
  'every fifth frame left out': [...PICTURES, ...SOUND, ...select('mod(n,5)')],
  // Three seconds each: of 120 frames a second every fifth, fourth and second.
  '24, 30, 60 frames a second': [
    ...at(120),
    ...SOUND,
    ...select('if(lt(mod(t,9),3),not(mod(n,5)),if(lt(mod(t,9),6),not(mod(n,4)),not(mod(n,2))))'),
  ],
  'one frame a second': [...at(1), ...SOUND, '-g', '2'],
};

/** Keyframes far apart: a page that comes between two has seen neither. */
export const DISTANCES = {
  'keyframes 8 s apart': [...PICTURES, ...SOUND, '-g', '240'],
  'keyframes 1.5 to 10 s apart': [
    ...PICTURES,
    ...SOUND,
    '-g',
    '1000',
    '-force_key_frames',
    [0, 1.5, 9.5, 12.5, 22.5, 24, 32, 39, 40.5, 50.5, 58.5, 60, 69, 76, 77.5, 87].join(','),
  ],
};

/** When the source's frames are shown, in seconds of its own clock. */
export async function framesOf(file) {
  const what = ['-select_streams', 'v', '-show_entries', 'packet=pts_time', '-of', 'csv=p=0'];
  const { stdout } = await promisify(execFile)('ffprobe', ['-v', 'error', ...what, file]);
  return stdout.trim().split('\n').map(Number.parseFloat);
}

/**
 * In the page, before all else: each frame that the browser says was shown, by its time in the media, with what it has
 * counted so far; and at which of them the player jumped. Only what is played first: a page may begin anew at the end.
 */
function noteFrames() {
  const noted = { shown: [], jumps: [], over: false };
  window.noted = noted;
  const note = (video) => {
    video.noted = true;
    // Between these two events a frame from before the jump may be told of, or one from after it.
    video.addEventListener('seeking', () => noted.jumps.push([noted.shown.length, null]));
    video.addEventListener('seeked', () => {
      for (const jump of noted.jumps) jump[1] ??= noted.shown.length;
    });
    for (const event of ['ended', 'emptied']) {
      video.addEventListener(event, () => {
        // The last frame is told of after this.
        if (noted.shown.length > 0) setTimeout(() => (noted.over = true), event === 'ended' ? 500 : 0);
      });
    }
    const shown = (_now, { mediaTime, presentedFrames }) => {
      if (noted.over) return;
      const { totalVideoFrames, droppedVideoFrames } = video.getVideoPlaybackQuality();
      noted.shown.push({
        at: mediaTime,
        presentedFrames,
        decoded: totalVideoFrames,
        dropped: droppedVideoFrames,
      });
      video.requestVideoFrameCallback(shown);
    };
    video.requestVideoFrameCallback(shown);
  };
  setInterval(() => {
    const video = document.querySelector('video');
    if (video && !video.noted) note(video);
  }, 10);
}

/** In the page: where it is, and the longest hole in what is buffered between a time and here. */
function moment(since) {
  const { buffered, currentTime, error } = document.querySelector('video');
  let hole = 0;
  for (let i = 1; i < buffered.length && buffered.end(i - 1) < currentTime; i++) {
    if (buffered.end(i - 1) > since) hole = Math.max(hole, buffered.start(i) - buffered.end(i - 1));
  }
  const { shown } = window.noted;
  return {
    time: currentTime,
    now: performance.now(),
    frames: shown.length,
    hole,
    error: error?.message ?? null,
  };
}

/** In the page: until all has been played, or no more frames come for two seconds; ten at most. */
async function untilOver() {
  let [before, still] = [-1, 0];
  for (let i = 0; i < 100 && !window.noted.over && still < 20; i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    still = window.noted.shown.length === before ? still + 1 : 0;
    before = window.noted.shown.length;
  }
}

/**
 * A fresh page that plays `live/NAME`, with its first picture when `begun` resolves. `watch` tells how it goes on for
 * so many seconds; `rest` waits until no more frames come, and tells of all that were shown.
 */
export async function openFrames(browser, server, plain, name, via) {
  // A browser without a graphics card paints: the smaller the page, the more are played at once.
  const { page, complaints } = await openPage(browser, { viewport: { width: 480, height: 360 } });
  await page.addInitScript(noteFrames);
  await page.addInitScript(observe, STANDS);
  return {
    async begun() {
      await page.goto(addressOf(server, plain, name, via));
      await page
        .waitForFunction(() => window.seen.first !== null, undefined, { timeout: 30_000 })
        .catch(() => {
          throw new Error(`${name} by ${via}: no picture within 30 s`);
        });
    },
    async watch(seconds) {
      const begin = await page.evaluate(moment, Number.POSITIVE_INFINITY);
      await page.waitForTimeout(seconds * 1000);
      const end = await page.evaluate(moment, begin.time);
      const { first, standings } = await page.evaluate(() => window.seen);
      return {
        standings: standings.filter(({ at }) => first + at > begin.now),
        played: end.time - begin.time,
        seconds: (end.now - begin.now) / 1000,
        // Jumps before these frames are of the beginning, and after them of the end.
        span: [begin.frames, end.frames],
        hole: end.hole,
        error: end.error,
        complaints: [...complaints],
      };
    },
    async rest() {
      await within(15_000, page.evaluate(untilOver), `end of ${name} by ${via}`);
      return page.evaluate(() => window.noted);
    },
    close: () => page.context().close(),
  };
}

/**
 * Which of the source's frames those shown are: players place a stream's beginning where they like, so it is the place
 * in which all come nearest to frames of the source. Where that is so in several, frames count alike in each.
 * Returns the index of each, and how far the worst is off, in seconds.
 */
export function placeFrames(shown, source) {
  let best = { off: Number.POSITIVE_INFINITY, indices: [] };
  for (const origin of source) {
    const by = origin - shown[0].at;
    const indices = [];
    let [index, off] = [0, 0];
    for (const { at } of shown) {
      const distance = (i) => Math.abs(source[i] - by - at);
      while (index > 0 && distance(index - 1) < distance(index)) index -= 1;
      while (index + 1 < source.length && distance(index + 1) <= distance(index)) index += 1;
      indices.push(index);
      off = Math.max(off, distance(index));
      if (off >= best.off) break;
    }
    if (off < best.off) best = { off, indices };
  }
  return best;
}
