/** The end of the media at the playhead without a hole of more than `gap`, in seconds. */
export function endOfBuffered({ buffered, currentTime }: HTMLVideoElement, gap = 0): number {
  let end = currentTime;
  // The playhead may be a little before the first buffered sample.
  for (let i = 0; i < buffered.length; i++) {
    const reach = end > currentTime ? end + gap : currentTime + 0.1;
    if (buffered.start(i) <= reach) end = Math.max(end, buffered.end(i));
  }
  return end;
}

/** The start of the first media after the playhead, if there are none at it; in seconds. */
export function nextBuffered({ buffered, currentTime }: HTMLVideoElement): number | null {
  for (let i = 0; i < buffered.length; i++) {
    if (buffered.start(i) > currentTime) return buffered.start(i);
    if (currentTime < buffered.end(i)) return null;
  }
  return null;
}
