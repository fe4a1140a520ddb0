import type { Publisher, Stream, Track } from '../shared/api';
import { codecName } from '../shared/codec';
import * as format from '../shared/format';
import { isRecorded, isStream } from '../shared/streams';

/** So many streams are shown at first, and so many more each time that more are asked for. */
export const STREAMS_AT_ONCE = 50;
/** From so many streams on, the list can be searched. */
export const SEARCHED = 8;

/**
 * Sorts streams: live ones first, then those that may come back, then those that are over; each
 * group by name.
 */
export function inOrder(streams: readonly Stream[]): Stream[] {
  const rank = { live: 0, offline: 1, ended: 2 };
  return [...streams].sort(
    (a, b) => rank[a.state] - rank[b.state] || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  );
}

/** The streams whose names have a text, and of these those with warnings only, if that is asked for. */
export function found(streams: readonly Stream[], wanted: string, onlyWarned: boolean): Stream[] {
  const text = wanted.trim().toLowerCase();
  return streams.filter(
    (stream) => stream.name.toLowerCase().includes(text) && (!onlyWarned || warningsOf(stream) > 0),
  );
}

export function warningsOf(stream: Stream): number {
  return stream.advice.filter(({ level }) => level === 'warning').length;
}

/** The health of a stream in a word or two, and whether it is one to look at. Null where there is nothing to say. */
export function verdict(stream: Stream): { level: 'good' | 'note' | 'warning'; text: string } | null {
  const [warnings, notes] = [warningsOf(stream), stream.advice.length - warningsOf(stream)];
  if (warnings > 0) return { level: 'warning', text: format.counted(warnings, 'warning') };
  if (notes > 0) return { level: 'note', text: format.counted(notes, 'note') };
  return stream.state === 'live' ? { level: 'good', text: 'Healthy' } : null;
}

/** Protocols of publishers inside the server: a clip, and a rendition made of the stream's own media. */
const INSIDE = ['file', 'ladder'];

/** Why no publisher of a stream has a session here. */
export function unlisted(publishers: readonly Publisher[]): string {
  if (publishers.length === 0) return 'Nobody publishes the stream to this server.';
  return publishers.every(({ protocol }) => INSIDE.includes(protocol))
    ? 'This server publishes the stream itself.'
    : 'Its publisher is connected to another node.';
}

/** The stream that a fragment of the page's address names, `#stream=live/NAME`; null for the overview. */
export function streamOf(fragment: string): string | null {
  const named = /^#stream=(.+)$/.exec(fragment)?.[1];
  if (named === undefined) return null;
  try {
    const stream = decodeURIComponent(named);
    return isStream(stream) && !isRecorded(stream) ? stream : null;
  } catch {
    return null;
  }
}

/** The address of a stream's own view. Names have no letters that would need an escape. */
export function streamHref(stream: string): string {
  return `#stream=${stream}`;
}

/** Deliveries in the order of charts and lists. Others come after them. */
const ORDER = ['llhls', 'hls', 'dash', 'push', 'webrtc', 'rtmp', 'mp4', 'flv'];

/** Sorts what is counted by delivery. */
export function byDelivery<T extends { delivery: string }>(counted: readonly T[]): T[] {
  const rank = ({ delivery }: T) => {
    const place = ORDER.indexOf(delivery);
    return place < 0 ? ORDER.length : place;
  };
  return [...counted].sort((a, b) => rank(a) - rank(b));
}

export function viewersOf(stream: Stream): number {
  return stream.viewers.reduce((sum, { count }) => sum + count, 0);
}

/** `2 live streams, 5 viewers` */
export function summary(streams: readonly Stream[]): string {
  const live = streams.filter(({ state }) => state === 'live').length;
  const viewers = streams.reduce((sum, stream) => sum + viewersOf(stream), 0);
  return `${format.counted(live, 'live stream')}, ${format.counted(viewers, 'viewer')}`;
}

/** Describes a track in words: `H.264`, `1280 × 720, 30 fps`, `2.0 Mbit/s`. */
export function describeTrack(track: Track): { codec: string; shape: string; bitrate: string } {
  const parts =
    track.kind === 'video'
      ? [format.resolution(track.width, track.height), format.frameRate(track.frameRate)]
      : [format.sampleRate(track.sampleRate), format.channels(track.channels)];
  const shape = parts.filter((part) => part !== format.UNKNOWN).join(', ') || format.UNKNOWN;
  return {
    codec: track.codec === '' ? 'unknown' : codecName(track.codec),
    shape,
    bitrate: format.bitrate(track.bitrate),
  };
}

/**
 * The differences between two lists as a sentence for screen readers, or null: streams that came,
 * went or changed state.
 */
export function changes(before: readonly Stream[], after: readonly Stream[]): string | null {
  const words = { live: 'is live', offline: 'has lost its publisher', ended: 'has ended' };
  const said: string[] = [];
  for (const stream of after) {
    if (before.find(({ name }) => name === stream.name)?.state !== stream.state)
      said.push(`${stream.name} ${words[stream.state]}`);
  }
  for (const { name, state } of before) {
    if (state !== 'ended' && !after.some((stream) => stream.name === name)) said.push(`${name} is gone`);
  }
  return said.length > 0 ? `${said.join('. ')}.` : null;
}

/**
 * How to publish to this server with common programs. `host` is the name under which this page was
 * loaded.
 */
export function publishing(host: string): { ffmpeg: string; headwater: string; server: string; key: string } {
  // location.hostname keeps the brackets of an IPv6 address, and a URL needs them.
  const url = `rtmp://${host}/live/NAME`;
  return {
    ffmpeg: `ffmpeg -re -stream_loop -1 -i INPUT.mp4 -c:v libx264 -preset veryfast -tune zerolatency -g 60 -c:a aac -f flv ${url}`,
    headwater: `headwater publish INPUT.mp4 ${url} --loop`,
    server: `rtmp://${host}/live`,
    key: 'NAME',
  };
}
