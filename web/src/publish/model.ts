import { isStream } from '../shared/streams';

/** Where the video comes from: a camera's id, the screen, or nothing. */
export type VideoSource = { kind: 'camera'; id: string | null } | { kind: 'screen' } | { kind: 'none' };
/** Where the audio comes from: a microphone's id, or nothing. */
export type AudioSource = { kind: 'microphone'; id: string | null } | { kind: 'none' };

export interface Settings {
  video: VideoSource;
  audio: AudioSource;
  /** Lines of the video. A camera may have only fewer. */
  height: number;
  /** The most that the video takes, in bit/s. */
  bitrate: number;
}

export const HEIGHTS: readonly number[] = [360, 480, 720, 1080];
export const BITRATES: readonly number[] = [500_000, 1_000_000, 2_500_000, 5_000_000, 8_000_000];

export const USUAL: Settings = {
  video: { kind: 'camera', id: null },
  audio: { kind: 'microphone', id: null },
  height: 720,
  bitrate: 2_500_000,
};

/** What is being sent. Null where it is not known. */
export interface Sent {
  /** Video and audio together, in bit/s. */
  bitrate: number | null;
  frameRate: number | null;
  width: number | null;
  height: number | null;
  /** Share of the video's packets that did not arrive at first, from 0 to 1. */
  loss: number | null;
  /** In seconds. */
  roundTrip: number | null;
  /** Why the browser sends less than it may. */
  limitedBy: 'bandwidth' | 'processor' | null;
}

export const NOTHING_SENT: Sent = {
  bitrate: null,
  frameRate: null,
  width: null,
  height: null,
  loss: null,
  roundTrip: null,
  limitedBy: null,
};

/** A moment's counters, from which the next moment's bit rate follows. */
export interface Counted {
  /** In milliseconds. */
  at: number;
  bytes: number;
}

type Report = Record<string, unknown> & { type: string };

/** Reads a connection's statistics (W3C webrtc-stats): what is sent, and the counters of this moment. */
export function figures(reports: Iterable<Report>, at: number, before: Counted | null): [Sent, Counted] {
  const sent = { ...NOTHING_SENT };
  let bytes = 0;
  for (const report of reports) {
    if (report.type === 'outbound-rtp') {
      bytes += number(report.bytesSent) ?? 0;
      if (report.kind !== 'video') continue;
      sent.frameRate = number(report.framesPerSecond);
      sent.width = number(report.frameWidth);
      sent.height = number(report.frameHeight);
      const limits = { bandwidth: 'bandwidth', cpu: 'processor' } as const;
      const reason = report.qualityLimitationReason;
      sent.limitedBy = reason === 'bandwidth' || reason === 'cpu' ? limits[reason] : null;
    } else if (report.type === 'remote-inbound-rtp' && report.kind === 'video') {
      sent.loss = number(report.fractionLost);
    } else if (report.type === 'candidate-pair' && report.nominated === true) {
      sent.roundTrip = number(report.currentRoundTripTime);
    }
  }
  if (before !== null && at > before.at && bytes >= before.bytes)
    sent.bitrate = ((bytes - before.bytes) * 8 * 1000) / (at - before.at);
  return [sent, { at, bytes }];
}

function number(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

/** The constraints by which a browser gives the camera and the microphone; null if neither is wanted. */
export function constraints({ video, audio, height }: Settings): MediaStreamConstraints | null {
  const wanted = (id: string | null) => (id === null ? {} : { deviceId: { exact: id } });
  if (video.kind !== 'camera' && audio.kind !== 'microphone') return null;
  return {
    video: video.kind === 'camera' && {
      ...wanted(video.id),
      height: { ideal: height },
      frameRate: { ideal: 30 },
    },
    audio: audio.kind === 'microphone' && wanted(audio.id),
  };
}

/**
 * The codecs to offer for video: H.264, which all deliveries carry, and what repairs losses. Empty if
 * the browser does not encode H.264.
 */
export function preferred<Codec extends { mimeType: string }>(codecs: readonly Codec[]): Codec[] {
  const named = (name: string) => codecs.filter(({ mimeType }) => mimeType.toLowerCase() === `video/${name}`);
  const avc = named('h264');
  return avc.length === 0 ? [] : [...avc, ...named('rtx')];
}

/** The stream that a publish page is for, `live/NAME`; null if its address names none. */
export function streamOf(pathname: string): string | null {
  const match = /^\/publish\/(live\/.+?)\/?$/.exec(pathname);
  return match?.[1] && isStream(match[1]) ? match[1] : null;
}

/** Why a device could not be opened, in words. */
export function deviceTrouble(error: unknown): string {
  const name = error instanceof DOMException ? error.name : '';
  switch (name) {
    case 'NotAllowedError':
      return 'The browser did not let this page use the device. Allow it in the browser’s address bar.';
    case 'NotFoundError':
    case 'OverconstrainedError':
      return 'There is no such camera or microphone.';
    case 'NotReadableError':
      return 'Another program uses the camera or the microphone.';
    default:
      return `The device could not be opened: ${String(error)}.`;
  }
}
