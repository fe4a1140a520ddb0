// Notes where playback stands still, and whether the page waited for media or for a busy machine.

import { stoppedFor } from './stops.mjs';

/** A step of playback that is longer than this, in seconds, is a jump. */
export const JUMP = 1;
/** A frame that stands for longer than this, in milliseconds, is noted. The first frame is not. */
export const STANDS = 300;
/**
 * How long a page may wait for media in tests, in milliseconds. Pages, ffmpeg and servers share the
 * processors. The faults that the tests look for lasted 4 to 10 s. scripts/bench-young-pages.mjs
 * counts every standing longer than STANDS, on a quiet machine.
 */
export const STOOD = 2000;
/**
 * Media ahead that do not let a page go on, in seconds: after a wait, Chromium wants more than a quarter of
 * a second of them.
 */
export const LITTLE = 0.3;
/** Of a page that is dry for longer than this, in milliseconds, the requests are noted. */
export const ASKS = 1000;

/**
 * Runs in the page before its own scripts. Notes when frames are shown, how many were `decoded` in all, how much
 * media was played (`played`, seconds, without what a player jumped over), for how long this script did not run (`frozen`,
 * seconds, each time that lasts longer than `stands` milliseconds), and each time that playback stands for longer
 * than `stands` milliseconds. Such a standing has its begin (`began`, as of `Date.now()`), its length (`ms`), the
 * time of it in which less than `little` seconds of media were ahead (`dry`, milliseconds), the length of the media
 * ahead when it began (`ahead`, seconds), and the longest time for which this script did not run (`late`,
 * milliseconds).
 * A page that stands with media ahead, or whose script does not run, waits for the machine and not for
 * the stream. A page that was dry for longer than `asks` also has the `requests` that it made then, and
 * shortly before: they tell the page's wait from the server's.
 */
export function observe([stands, jump, asks, little]) {
  let [time, since, standing, looked, late, dry, frozen] = [-1, 0, null, performance.now(), 0, 0, 0];
  // With the time until now: a test may ask before this script runs again.
  const frozenAt = (now) => (!seen.over && now - looked > stands ? frozen + (now - looked) / 1000 : frozen);
  const seen = { first: null, moves: 0, played: 0, frames: 0, decoded: 0, standings: [], over: null };
  // A player that begins anew, or by another delivery, makes the browser count anew.
  let counted = 0;
  const count = ({ totalVideoFrames }) => {
    seen.decoded += totalVideoFrames < counted ? totalVideoFrames : totalVideoFrames - counted;
    counted = totalVideoFrames;
  };
  Object.defineProperty(seen, 'frozen', { enumerable: true, get: () => frozenAt(performance.now()) });
  window.seen = seen;
  const ahead = ({ buffered, currentTime }) => {
    for (let i = 0; i < buffered.length; i++) {
      if (buffered.start(i) <= currentTime + 0.1 && currentTime < buffered.end(i))
        return buffered.end(i) - currentTime;
    }
    return 0;
  };
  performance.setResourceTimingBufferSize(5_000);
  // A request as text. Its times are in milliseconds after the first frame.
  window.describeRequest = ({ name, startTime, responseStart, responseEnd, responseStatus }) => {
    const [asked, begun, ended] = [startTime, responseStart, responseEnd].map((at) =>
      Math.round(at - seen.first),
    );
    return `${new URL(name).pathname} ${responseStatus}: asked ${asked}, begun ${begun}, ended ${ended}`;
  };
  const requests = (from) => {
    const all = performance.getEntriesByType('resource');
    return all.filter(({ responseEnd }) => responseEnd >= from).map(window.describeRequest);
  };
  const look = () => {
    const video = document.querySelector('video');
    const now = performance.now();
    const quality = video?.getVideoPlaybackQuality();
    if (quality) count(quality);
    if (video && ahead(video) < little) dry += now - looked;
    frozen = frozenAt(now);
    [looked, late] = [now, Math.max(late, now - looked)];
    if (video && seen.first === null && video.requestVideoFrameCallback && !video.observed) {
      video.observed = true;
      const shown = (at) => {
        seen.first ??= at;
        seen.frames += 1;
        video.requestVideoFrameCallback(shown);
      };
      video.requestVideoFrameCallback(shown);
    }
    if (!video || seen.first === null) return;
    // The viewer's pauses, and the end, are not standings.
    if (video.currentTime !== time || video.paused || video.ended) {
      const step = video.currentTime - time;
      if (time >= 0 && step > 0 && step < jump) seen.played += step;
      if (standing?.dry > asks) standing.requests = requests(since - asks);
      [time, since, standing, late, dry] = [video.currentTime, now, null, 0, 0];
      seen.moves += 1;
      if (window.watchFor && seen.played >= window.watchFor) {
        seen.over = { now, decoded: seen.decoded, dropped: quality.droppedVideoFrames };
        clearInterval(timer);
      }
      // The first frame is shown before playback moves, until enough is buffered to play.
    } else if (now - since > stands && seen.moves > 1) {
      if (!standing) {
        const [at, began] = [since - seen.first, performance.timeOrigin + since].map(Math.round);
        standing = { at, began, time, ms: 0, dry: 0, ahead: ahead(video), late: 0 };
        seen.standings.push(standing);
      }
      [standing.ms, standing.dry, standing.late] = [now - since, dry, late].map(Math.round);
    }
  };
  const timer = setInterval(look, 20);
}

/**
 * Standings in which the page waited for media for longer than STOOD, without the time for which a process that
 * brings media was not run (stops.mjs). A page that had media ahead, or was not run itself, waited for the
 * machine: such a wait may last 12 s, and as long as the page was not run. So did unmodified hls.js where it fell
 * `behind` (plain.mjs). hls.js may then stand until the parts of the segment leave the playlist,
 * which takes three times the longest segment, and until the next keyframe comes. `far` is the longest
 * distance of keyframes, in seconds.
 */
export function longStandings(standings, far = 2) {
  return standings.filter((standing) => {
    const { ms, dry, late, behind } = standing;
    if (behind) return ms > 4_000 * (1 + far);
    return ms - late > 12_000 || (late <= 200 && dry - stoppedFor(standing) > STOOD);
  });
}

/** The page's standings since its first frame, or since `since`, in milliseconds of its clock. */
export async function standingsOf(page, since = 0) {
  const { first, standings } = await page.evaluate(() => window.seen);
  return standings.filter(({ at }) => first + at >= since);
}
