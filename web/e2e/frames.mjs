// Compares the frames of a stream that a page plays with the frames of its source.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { addressOf, fellBehind, isBehind, markBehind, noteHls } from './plain.mjs';
import { standingsOf } from './standings.mjs';
import { openPage, PATIENCE, SMALL, within } from './support.mjs';
import { AUDIO, untilFirstFrame, VIDEO } from './young.mjs';

const EVERY_TWO_SECONDS = ['-force_key_frames', 'expr:gte(t,n_forced*2)', '-g', '1000'];
const select = (frames) => ['-vf', `select='${frames}'`, '-fps_mode', 'vfr', ...EVERY_TWO_SECONDS];
const at = (rate) => ['-f', 'lavfi', '-i', `testsrc2=size=320x180:rate=${rate}`];

/** Streams whose frames are unevenly spaced, or few. */
export const RATES = {
  'every fifth frame left out': [...VIDEO, ...AUDIO, ...select('mod(n,5)')],
  // Every fifth, fourth and second of 120 frames a second, for three seconds each.
  '24, 30, 60 frames a second': [
    ...at(120),
    ...AUDIO,
    ...select('if(lt(mod(t,9),3),not(mod(n,5)),if(lt(mod(t,9),6),not(mod(n,4)),not(mod(n,2))))'),
  ],
  // ffmpeg's random numbers are the same in each run.
  'frames up to 15 ms early or late': [
    ...VIDEO,
    ...AUDIO,
    '-vf',
    "settb=1/1000,setpts='PTS+30*random(0)-15'",
    '-enc_time_base',
    '1:1000',
    '-fps_mode',
    'passthrough',
    ...EVERY_TWO_SECONDS,
  ],
  'one frame a second': [...at(1), ...AUDIO, '-g', '2'],
};

/** Streams with keyframes far apart. A page that opens between two keyframes has seen neither. */
export const DISTANCES = {
  'keyframes 8 s apart': [...VIDEO, ...AUDIO, '-g', '240'],
  'keyframes 0.3 to 10 s apart': [
    ...VIDEO,
    ...AUDIO,
    '-g',
    '1000',
    '-force_key_frames',
    [0, 120]
      .flatMap((since) =>
        [
          0, 1.5, 9.5, 9.8, 12.5, 22.5, 22.8, 24, 32, 32.3, 39, 39.3, 40.5, 50.5, 50.8, 58.5, 58.8, 60, 69,
          69.3, 76, 76.3, 77.5, 87, 88.5, 97, 97.3, 107, 107.3, 109, 115,
        ].map((at) => since + at),
      )
      .join(','),
  ],
};

/** Presentation times of the source's frames, in seconds of the source's clock. */
export async function framesOf(file) {
  const what = ['-select_streams', 'v', '-show_entries', 'packet=pts_time', '-of', 'csv=p=0'];
  const { stdout } = await promisify(execFile)('ffprobe', ['-v', 'error', ...what, file]);
  return stdout.trim().split('\n').map(Number.parseFloat);
}

/**
 * Runs in the page before its own scripts. Notes each frame that the browser reports as shown: its
 * media time, and the browser's count of decoded frames so far. Notes also at which frames the
 * player jumps, whether it had media ahead then, and from where to where it jumps; and the browser's
 * last counts: it may count a frame after it reported that frame.
 * Stops when the media end or the player empties the element: a page may begin anew then.
 */
function noteFrames() {
  const noted = { shown: [], jumps: [], at: 0, decoded: 0, dropped: 0, over: false };
  window.noted = noted;
  const count = (video) => {
    const { totalVideoFrames, droppedVideoFrames } = video.getVideoPlaybackQuality();
    // The counts of an emptied element begin anew.
    if (totalVideoFrames < noted.decoded) return;
    [noted.decoded, noted.dropped] = [totalVideoFrames, droppedVideoFrames];
  };
  const note = (video) => {
    video.noted = true;
    // Between these two events the browser may report frames from before the jump or after it.
    video.addEventListener('seeking', () => {
      const { buffered } = video;
      let ahead = false;
      for (let i = 0; i < buffered.length; i++) {
        ahead ||= buffered.start(i) <= noted.at && noted.at + 0.1 < buffered.end(i);
      }
      noted.jumps.push([noted.shown.length, null, ahead, noted.at, video.currentTime]);
    });
    video.addEventListener('seeked', () => {
      for (const jump of noted.jumps) jump[1] ??= noted.shown.length;
    });
    const end = () => {
      noted.over ||= noted.shown.length > 0;
    };
    video.addEventListener('emptied', end);
    video.addEventListener('ended', async () => {
      // The browser reports the last frames after `ended`, when it paints them.
      await new Promise((resolve) => setTimeout(resolve, 500));
      for (let paints = 0; paints < 3; paints++) await new Promise(requestAnimationFrame);
      end();
    });
    const shown = (_now, { mediaTime }) => {
      if (noted.over) return;
      count(video);
      noted.shown.push({ at: mediaTime, decoded: noted.decoded });
      video.requestVideoFrameCallback(shown);
    };
    video.requestVideoFrameCallback(shown);
  };
  setInterval(() => {
    const video = document.querySelector('video');
    if (video && !video.noted) note(video);
    if (video && !noted.over) count(video);
    if (video && !video.seeking) noted.at = video.currentTime;
  }, 10);
}

/**
 * Runs in the page. Returns its position, the number of frames noted so far, and the holes in the
 * buffer between the time `since` and that position, each from and to.
 */
function moment(since) {
  const { buffered, currentTime, error } = document.querySelector('video');
  const holes = [];
  for (let i = 1; i < buffered.length && buffered.end(i - 1) < currentTime; i++) {
    if (buffered.end(i - 1) > since) holes.push([buffered.end(i - 1), buffered.start(i)]);
  }
  const { shown } = window.noted;
  return {
    time: currentTime,
    now: performance.now(),
    frames: shown.length,
    holes,
    error: error?.message ?? null,
  };
}

/**
 * Runs in the page. Waits until the media have ended or no frame has come for two seconds, but no
 * longer than ten seconds. Time in which the browser paints nothing does not count.
 */
async function untilOver() {
  let [before, still] = [-1, 0];
  for (let i = 0; i < 100 && !window.noted.over && still < 20; i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    await new Promise(requestAnimationFrame);
    still = window.noted.shown.length === before ? still + 1 : 0;
    before = window.noted.shown.length;
  }
}

/**
 * Opens a fresh page. `begun` plays `live/NAME` and resolves when the first frame is shown. `watch`
 * reports how playback goes on for so many seconds of media, or to their end. `rest` waits until no
 * more frames come, and returns all frames that were shown. In pages of `plain`, holes do not count
 * where hls.js fell behind.
 */
export async function openFrames(browser, server, plain, name, via) {
  const { page, complaints } = await openPage(browser, SMALL);
  await page.addInitScript(noteFrames);
  if (via === 'plain') await page.addInitScript(noteHls);
  const behindOf = async () => (via === 'plain' ? fellBehind(page) : []);
  return {
    async begun() {
      await page.goto(addressOf(server, plain, name, via));
      await untilFirstFrame(page, `${name} by ${via}`);
    },
    async watch(seconds) {
      const begin = await page.evaluate(moment, Number.POSITIVE_INFINITY);
      // On a busy machine this takes longer than `seconds`.
      await page.waitForFunction(
        (until) => window.noted.over || document.querySelector('video').currentTime >= until,
        begin.time + seconds,
      );
      const end = await page.evaluate(moment, begin.time);
      const [behind, standings] = [await behindOf(), await standingsOf(page, begin.now)];
      markBehind(standings, behind);
      const holes = end.holes.filter(([from]) => !isBehind(behind, from)).map(([from, to]) => to - from);
      return {
        standings,
        played: end.time - begin.time,
        seconds: (end.now - begin.now) / 1000,
        // Earlier jumps belong to the beginning of playback, later ones to its end.
        span: [begin.frames, end.frames],
        hole: Math.max(0, ...holes),
        holes: end.holes,
        error: end.error,
        complaints: [...complaints],
      };
    },
    async rest() {
      await within(PATIENCE, page.evaluate(untilOver), `end of ${name} by ${via}`);
      return { ...(await page.evaluate(() => window.noted)), behind: await behindOf() };
    },
    close: () => page.context().close(),
  };
}

/**
 * Finds the source's frame for each frame shown. A player may begin a stream at any media time, so
 * this tries each frame of the source as the first, and takes the one for which all frames shown
 * come nearest to frames of the source. If several fit equally well, the counts of frames are the
 * same. Returns the index of each frame, and how far the worst is off, in seconds.
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
