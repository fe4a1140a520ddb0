import { anyOf, timeout } from '../shared/abort';

/** Width of a poster's image, in pixels: enough for screens with two for each of the page's. */
const WIDTH = 480;
/** How long an image may take, in milliseconds. */
const PATIENCE = 10_000;
/** How often to look whether the browser has decoded the frame, in milliseconds. */
const LOOKED = 50;

/**
 * Draws a keyframe of a title. The browser decodes it, as the page that plays the title would, so the server reads a few
 * kilobytes and decodes nothing. Rejects if there is no image, as of codecs that this browser does not have.
 */
export async function draw(canvas: HTMLCanvasElement, poster: string, signal: AbortSignal): Promise<void> {
  const within = anyOf(signal, timeout(PATIENCE));
  const response = await fetch(poster, { signal: within });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  const url = URL.createObjectURL(await response.blob());
  const video = document.createElement('video');
  video.muted = true;
  video.playsInline = true;
  video.preload = 'auto';
  try {
    await new Promise<void>((resolve, reject) => {
      video.addEventListener('loadeddata', () => resolve());
      video.addEventListener('error', () => reject(new Error(video.error?.message)));
      within.addEventListener('abort', () => reject(within.reason));
      video.src = url;
    });
    const { videoWidth, videoHeight } = video;
    if (videoWidth === 0) throw new Error('there is no video in it');
    canvas.width = Math.min(WIDTH, videoWidth);
    canvas.height = Math.max(1, Math.round((canvas.width * videoHeight) / videoWidth));
    const context = canvas.getContext('2d', { willReadFrequently: true });
    if (!context) throw new Error('this browser does not draw');
    // When the data are loaded, Chromium does not always have the frame yet, and draws nothing. Chromium calls back
    // for a frame only when it paints the page. A busy machine may not do that for many seconds.
    for (;;) {
      context.drawImage(video, 0, 0, canvas.width, canvas.height);
      const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
      if (new Uint32Array(data.buffer).some((pixel) => pixel !== 0)) return;
      await new Promise((resolve) => setTimeout(resolve, LOOKED));
      within.throwIfAborted();
      if (video.error) throw new Error(video.error.message);
    }
  } finally {
    // Browsers have few decoders, and keep that of an element that has a source.
    video.removeAttribute('src');
    video.load();
    URL.revokeObjectURL(url);
  }
}
