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
  /** Whether the video is sent in several sizes at once (simulcast). */
  simulcast: boolean;
}

export const HEIGHTS: readonly number[] = [360, 480, 720, 1080];
export const BITRATES: readonly number[] = [500_000, 1_000_000, 2_500_000, 5_000_000, 8_000_000];

export const USUAL: Settings = {
  video: { kind: 'camera', id: null },
  audio: { kind: 'microphone', id: null },
  height: 720,
  bitrate: 2_500_000,
  simulcast: false,
};

/**
 * The layers of simulcast, from the smallest: browsers begin with the first. `share` is a layer's part of the
 * bit rate that is chosen.
 */
const LAYERS: readonly { rid: string; scale: number; share: number }[] = [
  { rid: 'l', scale: 4, share: 1 / 8 },
  { rid: 'm', scale: 2, share: 1 / 3 },
  { rid: 'h', scale: 1, share: 1 },
];
/** The fewest lines of a layer. */
const FEWEST = 160;

/** The layers in which video of these settings is sent. None without simulcast. */
export function encodings({ simulcast, height, bitrate }: Settings): RTCRtpEncodingParameters[] {
  const large = LAYERS.filter(({ scale }) => height / scale >= FEWEST);
  return (simulcast ? large : []).map(({ rid, scale }) => ({
    rid,
    scaleResolutionDownBy: scale,
    maxBitrate: mostBitrate(bitrate, rid),
  }));
}

/** The most that a layer takes where `bitrate` is chosen, in bit/s. Without simulcast it has no `rid`. */
export function mostBitrate(bitrate: number, rid: string | undefined): number {
  const layer = LAYERS.find((layer) => layer.rid === rid);
  return Math.round(bitrate * (layer?.share ?? 1));
}

/** What is being sent of one layer. Null where it is not known. */
export interface SentLayer {
  rid: string;
  /** In bit/s. */
  bitrate: number | null;
  frameRate: number | null;
  width: number | null;
  height: number | null;
}

/** What is being sent. Null where it is not known. */
export interface Sent {
  /** Video and audio together, in bit/s. */
  bitrate: number | null;
  /** Of the largest layer that is sent. */
  frameRate: number | null;
  width: number | null;
  height: number | null;
  /** The layers of simulcast, from the largest. */
  layers: readonly SentLayer[];
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
  layers: [],
  loss: null,
  roundTrip: null,
  limitedBy: null,
};

/** A moment's counters, from which the next moment's bit rate follows. */
export interface Counted {
  /** In milliseconds. */
  at: number;
  bytes: number;
  /** The bytes of each layer, by its rid. */
  layers: ReadonlyMap<string, number>;
}

type Report = Record<string, unknown> & { type: string };

/** Reads a connection's statistics (W3C webrtc-stats): what is sent, and the counters of this moment. */
export function figures(reports: Iterable<Report>, at: number, before: Counted | null): [Sent, Counted] {
  const sent: Sent = { ...NOTHING_SENT };
  const layers: SentLayer[] = [];
  const layerBytes = new Map<string, number>();
  const since = (bytes: number, earlier: number | undefined) =>
    before !== null && earlier !== undefined && at > before.at && bytes >= earlier
      ? ((bytes - earlier) * 8 * 1000) / (at - before.at)
      : null;
  let bytes = 0;
  for (const report of reports) {
    if (report.type === 'outbound-rtp') {
      const own = number(report.bytesSent) ?? 0;
      bytes += own;
      if (report.kind !== 'video') continue;
      const [width, height] = [number(report.frameWidth), number(report.frameHeight)];
      const frameRate = number(report.framesPerSecond);
      if (typeof report.rid === 'string') {
        const { rid } = report;
        layers.push({ rid, bitrate: since(own, before?.layers.get(rid)), frameRate, width, height });
        layerBytes.set(rid, own);
      }
      // A layer that the browser has switched off keeps its size, and has no frames.
      if (frameRate !== null && frameRate > 0 && (height ?? 0) >= (sent.height ?? 0))
        Object.assign(sent, { frameRate, width, height });
      const limits = { bandwidth: 'bandwidth', cpu: 'processor' } as const;
      const reason = report.qualityLimitationReason;
      if (reason === 'bandwidth' || reason === 'cpu') sent.limitedBy = limits[reason];
    } else if (report.type === 'remote-inbound-rtp' && report.kind === 'video') {
      const loss = number(report.fractionLost);
      if (loss !== null) sent.loss = Math.max(loss, sent.loss ?? 0);
    } else if (report.type === 'candidate-pair' && report.nominated === true) {
      sent.roundTrip = number(report.currentRoundTripTime);
    }
  }
  sent.bitrate = since(bytes, before?.bytes);
  sent.layers = layers.sort((one, other) => (other.height ?? 0) - (one.height ?? 0));
  return [sent, { at, bytes, layers: layerBytes }];
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
