import type { Credentials } from '../../shared/credentials';
import type { Via } from '../../shared/streams';
import type { Failure } from '../condition';

/** What an engine knows in addition to the video element. */
export interface EngineStats {
  /**
   * When the frame on the screen was captured, by the server's clock: milliseconds since 1970.
   */
  shownAt: number | null;
  /**
   * Distance from the live edge by the engine's own measure, in seconds. Used if `shownAt` is not
   * known.
   */
  latency: number | null;
  /** The distance that the engine steers for, in seconds. */
  targetLatency: number | null;
  /** Bit rate of the present video rendition, in bit/s. */
  bitrate: number | null;
  frameRate: number | null;
  codec: string | null;
  /** Name of the rendition, if the engine knows it. */
  rendition: string | null;
  /** Bytes received: media, and the overhead of the delivery. Null if the engine does not count. */
  traffic: { media: number; overhead: number } | null;
  /** Bit/s of the network, as the engine measured it. Null if it does not measure. */
  throughput: number | null;
}

export interface EngineEvents {
  /** The manifest was read. */
  manifest(): void;
  /**
   * A track of a broadcast is over, or its playlist is gone. The broadcast may go on without the
   * track.
   */
  trackOver(): void;
  /** The engine cannot go on; only a new engine can. */
  failed(failure: Failure): void;
}

/** A track that the viewer can choose. */
export interface Choice {
  id: number;
  label: string;
  /** What names the track, where its label may change. */
  key?: string;
}

/** The tracks to choose from, and the chosen ones. Null means no subtitles. */
export interface Choices {
  audio: readonly Choice[];
  chosenAudio: number | null;
  subtitles: readonly Choice[];
  chosenSubtitles: number | null;
  renditions: readonly Choice[];
  /** Null if the server chooses. */
  chosenRendition: number | null;
}

export const NO_CHOICES: Choices = {
  audio: [],
  chosenAudio: null,
  subtitles: [],
  chosenSubtitles: null,
  renditions: [],
  chosenRendition: null,
};

/** Feeds a video element with media. */
export interface Engine {
  /** Name and version, for bug reports. */
  readonly name: string;
  stats(): EngineStats;
  choices(): Choices;
  /** Plays the audio track `id` of `choices().audio`. */
  chooseAudio(id: number): void;
  /** Shows the subtitles `id` of `choices().subtitles`, or none. */
  chooseSubtitles(id: number | null): void;
  /**
   * Plays the rendition `id` of `choices().renditions` and no other; with null the server chooses.
   */
  chooseRendition?(id: number | null): void;
  /** Seeks to where a new viewer would begin. */
  goLive(): void;
  /** The viewer paused. The engine must keep the position for later. */
  hold(): void;
  destroy(): void;
}

export interface Options {
  lowLatency: boolean;
  recorded: boolean;
  /** Position in a file at which to begin, in seconds. */
  startAt: number;
  /** The server's clock, in milliseconds since 1970. */
  clock: () => number;
  /** What lets the viewer in. The page's policy lets no request go to another server. */
  credentials: Credentials;
}

/** What plays: the engine of a delivery, or the browser itself. */
export type Player = Via | 'native';

/**
 * What plays a delivery, and the delivery whose address it gets. Without MediaSource the browser itself plays
 * HLS in the place of all deliveries that need MediaSource.
 */
export function playerOf(via: Via, hasMediaSource: boolean): { player: Player; plays: Via } {
  if (hasMediaSource || via === 'webrtc' || via === 'file') return { player: via, plays: via };
  return { player: 'native', plays: 'hls' };
}

/** A format and kind of streams, as CMCD names them; null if the engine itself tells of itself. */
export function told(via: Via, recorded: boolean): string | null {
  if (via === 'push') return null;
  // Only what makes requests is counted by what it tells. The others have connections.
  const format = via === 'dash' ? 'd' : via === 'hls' || via === 'llhls' ? 'h' : 'o';
  return `sf=${format},st=${recorded ? 'v' : via === 'llhls' ? 'll' : 'l'}`;
}

export type StartEngine = (
  video: HTMLVideoElement,
  url: string,
  options: Options,
  events: EngineEvents,
) => Engine;

export const NO_STATS: EngineStats = {
  shownAt: null,
  latency: null,
  targetLatency: null,
  bitrate: null,
  frameRate: null,
  codec: null,
  rendition: null,
  traffic: null,
  throughput: null,
};

/** A sentence about the HTTP status that ended playback. */
export function httpFailure(what: string, status: number | undefined): string {
  if (!status) return `${what} could not be loaded: the server did not answer.`;
  if (status === 404) return `${what} is not on the server (404).`;
  // The answer tells the reason: the file is damaged, cut off or encrypted, or has a codec that the
  // server does not know.
  if (status === 422) return `The server cannot make ${what.toLowerCase()} of this file (422).`;
  return `${what} could not be loaded: the server answered ${status}.`;
}
