import type { Failure } from '../condition';

/** What an engine knows beyond what the video element tells. */
export interface EngineStats {
  /** Wall-clock time of the picture on the screen, by the server's clock: milliseconds since 1970. */
  shownAt: number | null;
  /** Distance from the live edge as the engine reckons it, in seconds; used where `shownAt` is not known. */
  latency: number | null;
  /** The distance the engine steers for, in seconds. */
  targetLatency: number | null;
  /** Bitrate of the video rendition being played, in bit/s. */
  bitrate: number | null;
  frameRate: number | null;
  codec: string | null;
  /** Name of the rendition, where the engine knows one. */
  rendition: string | null;
  /** Bytes received: media, and what the delivery adds to them. Null where the engine does not count. */
  traffic: { media: number; overhead: number } | null;
}

export interface EngineEvents {
  /** The manifest was read. */
  manifest(): void;
  /** A track of a broadcast is over, or its playlist is gone. The broadcast may go on without it. */
  trackOver(): void;
  /** No way on without a new engine. */
  failed(failure: Failure): void;
}

/** A track the viewer can choose. */
export interface Choice {
  id: number;
  label: string;
}

/** What the viewer can choose from, and what is chosen; no subtitles are chosen when that is null. */
export interface Choices {
  audio: readonly Choice[];
  chosenAudio: number | null;
  subtitles: readonly Choice[];
  chosenSubtitles: number | null;
  renditions: readonly Choice[];
  /** Null where the server chooses. */
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

/** Something that feeds a video element. */
export interface Engine {
  /** Name and version, for bug reports. */
  readonly name: string;
  stats(): EngineStats;
  choices(): Choices;
  /** Plays the audio track `id`, one of `choices().audio`. */
  chooseAudio(id: number): void;
  /** Shows the subtitles `id`, one of `choices().subtitles`, or none. */
  chooseSubtitles(id: number | null): void;
  /** Plays the rendition `id`, one of `choices().renditions`, and no other; null leaves it to the server. */
  chooseRendition?(id: number | null): void;
  /** Seeks to where a viewer who comes now would begin. */
  goLive(): void;
  /** The viewer paused: stay where they left off when they come back. */
  hold(): void;
  destroy(): void;
}

export interface Options {
  lowLatency: boolean;
  recorded: boolean;
  /** Where a file begins to play, in seconds. */
  startAt: number;
  /** The server's clock, in milliseconds since 1970. */
  clock: () => number;
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
};

/** The sentence for an HTTP status that ended playback. */
export function httpFailure(what: string, status: number | undefined): string {
  if (!status) return `${what} could not be loaded: the server did not answer.`;
  if (status === 404) return `${what} is not on the server (404).`;
  // Why not is in the answer: damaged, cut off, encrypted, a codec that the server does not know.
  if (status === 422) return `The server cannot make ${what.toLowerCase()} of this file (422).`;
  return `${what} could not be loaded: the server answered ${status}.`;
}
