/** How long a seek may find no media before playback is moved on, in milliseconds. */
const STRANDED_AFTER = 500;
/** How often to look, in milliseconds. */
const LOOK_EVERY = 100;
/** A place counts as a range's end within this many seconds. */
const NEAR = 0.1;

/**
 * Moves a seek on that stands at the end of buffered media although more are buffered behind a hole
 * (docs/player.md, "Where dash.js stands still"). Stops when `stop` is aborted.
 */
export function leaveEnds(video: HTMLVideoElement, stop: AbortSignal): void {
  let since = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    const next = video.seeking ? afterEnd(video) : null;
    if (next !== null && now - since < STRANDED_AFTER) return;
    since = now;
    if (next !== null) video.currentTime = next;
  }, LOOK_EVERY);
  stop.addEventListener('abort', () => clearInterval(timer));
}

/**
 * The start of the buffered media behind a hole, in seconds, if playback stands at the beginning of
 * that hole.
 */
function afterEnd({ buffered, currentTime }: HTMLVideoElement): number | null {
  for (let i = 1; i < buffered.length; i++) {
    if (Math.abs(currentTime - buffered.end(i - 1)) < NEAR) return buffered.start(i);
  }
  return null;
}
