import { type Engine, type EngineStats, NO_CHOICES, NO_STATS, type StartEngine } from './engine';

/** HLS by the browser itself, if there is no MediaSource: Safari on older iPhones. */
export const startNative: StartEngine = (video, url, { recorded, startAt }, events): Engine => {
  const manifest = () => events.manifest();
  const failed = () => {
    const code = video.error?.code;
    const detail = `MediaError ${code ?? '?'}: ${video.error?.message ?? ''}`;
    if (code === MediaError.MEDIA_ERR_NETWORK) {
      events.failed({ kind: 'network', what: 'The stream could not be loaded.', detail });
    } else if (code === MediaError.MEDIA_ERR_SRC_NOT_SUPPORTED) {
      events.failed({
        kind: 'codec',
        what: 'The stream cannot be loaded, or this browser does not decode it.',
        detail,
      });
    } else {
      events.failed({ kind: 'media', what: 'The browser could not decode the stream.', detail });
    }
  };
  video.addEventListener('loadedmetadata', manifest);
  video.addEventListener('error', failed);
  video.src = url;
  if (startAt > 0) video.currentTime = startAt;

  return {
    name: 'native HLS',
    stats(): EngineStats {
      // Only Safari has getStartDate. It returns the PROGRAM-DATE-TIME of the element's time zero.
      const start = (video as HTMLVideoElement & { getStartDate?(): Date }).getStartDate?.().getTime();
      const dated = !recorded && start !== undefined && !Number.isNaN(start);
      return { ...NO_STATS, shownAt: dated ? start + video.currentTime * 1000 : null };
    },
    choices: () => NO_CHOICES,
    chooseAudio() {
      // A browser that plays HLS itself offers no choice here.
    },
    chooseSubtitles() {
      // As above.
    },
    goLive() {
      const { seekable } = video;
      if (seekable.length > 0) video.currentTime = seekable.end(seekable.length - 1);
    },
    hold() {
      // The browser itself keeps the position during a pause.
    },
    destroy() {
      video.removeEventListener('loadedmetadata', manifest);
      video.removeEventListener('error', failed);
      video.removeAttribute('src');
      video.load();
    },
  };
};
