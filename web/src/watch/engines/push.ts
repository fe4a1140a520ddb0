import type { PushEvents } from '../../push/push';
import * as format from '../../shared/format';
import type { Failure } from '../condition';
import { type Choices, type EngineStats, NO_CHOICES, type StartEngine } from './engine';

/** The player as the server publishes it. This page uses it as any other page does. */
const PLAYER = import.meta.env.DEV ? '/src/push/push.ts' : '/player/push.js';

export async function loadPush(): Promise<StartEngine> {
  return start(await import(/* @vite-ignore */ PLAYER));
}

/** Media pushed over a WebSocket. */
const start =
  ({ PushPlayer }: typeof import('../../push/push')): StartEngine =>
  (video, url, { recorded, startAt, clock }, events) => {
    const player = new PushPlayer(video, url, {
      from: recorded ? startAt : 'live',
      clock,
      ...(import.meta.env.DEV ? { worker: PLAYER } : {}),
    });
    let chosen: string | null = null;
    player.on('open', () => events.manifest());
    player.on('error', (error) => events.failed(failureOf(error, url)));

    return {
      get name() {
        return `MediaSource${player.stats().worker ? ' in a worker' : ''}`;
      },
      stats(): EngineStats {
        const stats = player.stats();
        return {
          shownAt: stats.shownAt,
          latency: stats.latency,
          targetLatency: stats.targetLatency,
          bitrate: stats.bitrate,
          frameRate: null,
          codec: stats.codecs,
          rendition: stats.rendition,
          traffic: { media: stats.mediaBytes, overhead: stats.overheadBytes },
          throughput: null,
        };
      },
      choices(): Choices {
        const { renditions } = player;
        const at = renditions.findIndex(({ name }) => name === chosen);
        return {
          ...NO_CHOICES,
          renditions: renditions.map(({ name, bitrate, resolution }, id) => ({
            id,
            key: name,
            label: [shortly(resolution) ?? name, bitrate > 0 ? format.bitrate(bitrate) : '']
              .filter(Boolean)
              .join(', '),
          })),
          chosenRendition: at < 0 ? null : at,
        };
      },
      chooseAudio() {
        // All renditions share one audio track.
      },
      chooseSubtitles() {
        // There are no subtitles.
      },
      chooseRendition(id) {
        chosen = id === null ? null : (player.renditions[id]?.name ?? null);
        player.setRendition(chosen);
      },
      goLive() {
        player.goLive();
      },
      hold() {
        player.pause();
      },
      destroy() {
        player.destroy();
      },
    };
  };

/** Shortens `1280x720` to `720p`. */
function shortly(resolution: string | null): string | null {
  const height = resolution?.split('x')[1];
  return height === undefined ? null : `${height}p`;
}

function failureOf({ code, message }: PushEvents['error'], url: string): Failure {
  const failures: Record<string, Omit<Failure, 'detail'>> = {
    'not-found': { kind: 'network', what: 'The stream is not on the server (404).' },
    refused: { kind: 'network', what: 'The server refuses to push the stream.', refusedBy: url },
    codec: { kind: 'codec', what: 'This browser decodes none of the codecs the stream is sent in.' },
    media: { kind: 'media', what: 'The browser could not decode the stream.' },
  };
  const failure = failures[code] ?? {
    kind: 'network',
    what: 'The stream could not be loaded: the server did not answer.',
  };
  return { ...failure, detail: message };
}
