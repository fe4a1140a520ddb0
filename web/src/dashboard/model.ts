import type { Stream, Track } from '../shared/api';
import { codecName } from '../shared/codec';
import * as format from '../shared/format';

/** Live first, then those that may come back, then those that are over; within each by name. */
export function inOrder(streams: readonly Stream[]): Stream[] {
  const rank = { live: 0, offline: 1, ended: 2 };
  return [...streams].sort(
    (a, b) => rank[a.state] - rank[b.state] || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  );
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

/** A track in words: `H.264`, `1280 × 720, 30 fps`, `2.0 Mbit/s`. */
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

/** What changed between two lists, as a sentence to be spoken, or null: streams that came, went or changed state. */
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

/** How to publish to this server, for the programs people have. `host` is the name this page was reached by. */
export function publishing(host: string): { ffmpeg: string; headwater: string; server: string; key: string } {
  // An IPv6 address keeps its brackets in location.hostname, as a URL needs them.
  const url = `rtmp://${host}/live/NAME`;
  return {
    ffmpeg: `ffmpeg -re -stream_loop -1 -i INPUT.mp4 -c:v libx264 -preset veryfast -tune zerolatency -g 60 -c:a aac -f flv ${url}`,
    headwater: `headwater publish INPUT.mp4 ${url} --loop`,
    server: `rtmp://${host}/live`,
    key: 'NAME',
  };
}
