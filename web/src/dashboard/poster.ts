/** Width of a poster's picture, in pixels: enough for screens with two for each of the page's. */
const WIDTH = 480;
/** How long a picture may take, in milliseconds. */
const PATIENCE = 10_000;

/**
 * Draws a keyframe of a title. The browser decodes it, as the page that plays the title would, so the server reads a few
 * kilobytes and decodes nothing. Rejects if there is no picture, as of codecs that this browser does not have.
 */
export async function draw(canvas: HTMLCanvasElement, poster: string, signal: AbortSignal): Promise<void> {
  const within = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)]);
  const response = await fetch(poster, { signal: within });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  const url = URL.createObjectURL(await response.blob());
  const video = document.createElement('video');
  video.muted = true;
  video.playsInline = true;
  video.preload = 'auto';
  try {
    await new Promise<void>((resolve, reject) => {
      // When the data are loaded, Chromium does not always have the picture yet.
      if ('requestVideoFrameCallback' in video) video.requestVideoFrameCallback(() => resolve());
      else (video as HTMLVideoElement).addEventListener('loadeddata', () => resolve());
      video.addEventListener('error', () => reject(new Error(video.error?.message)));
      within.addEventListener('abort', () => reject(within.reason));
      video.src = url;
    });
    const { videoWidth, videoHeight } = video;
    canvas.width = Math.min(WIDTH, videoWidth);
    canvas.height = Math.round((canvas.width * videoHeight) / videoWidth);
    canvas.getContext('2d')?.drawImage(video, 0, 0, canvas.width, canvas.height);
  } finally {
    // Browsers have few decoders, and keep that of an element that has a source.
    video.removeAttribute('src');
    video.load();
    URL.revokeObjectURL(url);
  }
}
