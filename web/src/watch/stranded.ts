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
  let since: number | null = null;
  const timer = setInterval(() => {
    const next = video.seeking ? afterEnd(video) : null;
    const now = performance.now();
    since = next === null ? null : (since ?? now);
    if (next === null || since === null || now - since < STRANDED_AFTER) return;
    since = null;
    video.currentTime = next;
  }, LOOK_EVERY);
  stop.addEventListener('abort', () => clearInterval(timer));
}

/** The start of the media after the hole at whose beginning the picture stands, in seconds. */
function afterEnd({ buffered, currentTime }: HTMLVideoElement): number | null {
  for (let i = 1; i < buffered.length; i++) {
    if (Math.abs(currentTime - buffered.end(i - 1)) < NEAR) return buffered.start(i);
  }
  return null;
}
