import type { Track } from './api';

/** The codec of an RFC 6381 string in the words people use, or the string itself. */
export function codecName(codec: string): string {
  const fourcc = codec.split('.')[0]?.toLowerCase() ?? '';
  const names: Record<string, string> = {
    avc1: 'H.264',
    avc3: 'H.264',
    hvc1: 'HEVC',
    hev1: 'HEVC',
    av01: 'AV1',
    vp09: 'VP9',
    vp08: 'VP8',
    mp4a: codec.startsWith('mp4a.6') ? 'MP3' : 'AAC',
    '.mp3': 'MP3',
    mp3: 'MP3',
    opus: 'Opus',
    flac: 'FLAC',
    'ac-3': 'AC-3',
    'ec-3': 'E-AC-3',
  };
  return names[fourcc] ?? codec;
}

/**
 * The codecs that keep this browser from playing the stream: those of a kind (video, audio) of
 * which it can decode no track. Empty if it can decode a track of each kind; the engine then
 * leaves out the other tracks.
 */
export function missingCodecs(tracks: readonly Track[], decodes: (mime: string) => boolean): string[] {
  const missing: string[] = [];
  for (const kind of ['video', 'audio'] as const) {
    const codecs = tracks
      .filter((track) => track.kind === kind && track.codec !== '')
      .map((track) => track.codec);
    if (codecs.length > 0 && !codecs.some((codec) => decodes(`${kind}/mp4; codecs="${codec}"`))) {
      missing.push(...codecs.map(codecName));
    }
  }
  return [...new Set(missing)];
}
