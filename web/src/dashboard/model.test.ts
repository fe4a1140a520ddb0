import { describe, expect, it } from 'vitest';
import { type Publisher, parseStreams, type Stream, type StreamState } from '../shared/api';
import {
  byDelivery,
  changes,
  describeTrack,
  found,
  inOrder,
  publishing,
  streamHref,
  streamOf,
  summary,
  unlisted,
  verdict,
} from './model';

function stream(name: string, state: StreamState, viewers = {}, levels: string[] = []): Stream {
  const health = { advice: levels.map((level) => ({ level, text: 'do' })) };
  const [parsed] = parseStreams({ streams: [{ name, state, viewers, health }] });
  if (!parsed) throw new Error('unreachable');
  return parsed;
}

describe('the list', () => {
  it('shows live streams first, each state by name', () => {
    const streams = [
      stream('live/b', 'ended'),
      stream('live/z', 'live'),
      stream('live/a', 'offline'),
      stream('live/c', 'live'),
    ];
    expect(inOrder(streams).map(({ name }) => name)).toEqual(['live/c', 'live/z', 'live/a', 'live/b']);
  });

  it('is summed up', () => {
    expect(summary([])).toBe('0 live streams, 0 viewers');
    expect(summary([stream('live/a', 'live', { llhls: 1 }), stream('live/b', 'ended')])).toBe(
      '1 live stream, 1 viewer',
    );
    expect(summary([stream('live/a', 'live', { llhls: 2, dash: 3 })])).toBe('1 live stream, 5 viewers');
  });

  it('describes tracks, leaving out what is not known', () => {
    const [parsed] = parseStreams({
      streams: [
        {
          name: 'live/a',
          state: 'live',
          tracks: [
            { name: 'v0', kind: 'video', codec: 'avc1.64001f', bitrate: 2e6, width: 1280, height: 720 },
            { name: 'a0', kind: 'audio', codec: 'opus', sample_rate: 48_000, channels: 2 },
          ],
        },
      ],
    });
    expect(parsed?.tracks.map(describeTrack)).toEqual([
      { codec: 'H.264', shape: '1280\u00a0×\u00a0720', bitrate: '2.0 Mbit/s' },
      { codec: 'Opus', shape: '48 kHz, stereo', bitrate: '–' },
    ]);
  });

  it('speaks of what changed, and only then', () => {
    const a = stream('live/a', 'live');
    expect(changes([a], [stream('live/a', 'live', { llhls: 9 })])).toBeNull();
    expect(changes([], [a])).toBe('live/a is live.');
    expect(changes([a], [stream('live/a', 'offline'), stream('live/b', 'live')])).toBe(
      'live/a has lost its publisher. live/b is live.',
    );
    expect(changes([a], [])).toBe('live/a is gone.');
    expect(changes([stream('live/a', 'ended')], [])).toBeNull();
  });
});

it('tells how to publish to the host the page came from', () => {
  expect(publishing('[::1]').ffmpeg).toContain(' -f flv rtmp://[::1]/live/NAME');
  expect(publishing('media.example').server).toBe('rtmp://media.example/live');
});

describe('health', () => {
  it('is one word, and the worst counts', () => {
    const words = (state: StreamState, levels: string[]) => verdict(stream('live/a', state, {}, levels));
    expect(words('live', [])).toEqual({ level: 'good', text: 'Healthy' });
    expect(words('live', ['note', 'note'])).toEqual({ level: 'note', text: '2 notes' });
    expect(words('live', ['note', 'warning'])).toEqual({ level: 'warning', text: '1 warning' });
    expect(words('offline', [])).toBeNull();
  });

  it('finds streams by name, and those with warnings', () => {
    const streams = [stream('live/Cam-1', 'live', {}, ['warning']), stream('live/cam-2', 'live')];
    const names = (wanted: string, warned: boolean) => found(streams, wanted, warned).map(({ name }) => name);
    expect(names(' cam', false)).toEqual(['live/Cam-1', 'live/cam-2']);
    expect(names('2', false)).toEqual(['live/cam-2']);
    expect(names('', true)).toEqual(['live/Cam-1']);
    expect(names('2', true)).toEqual([]);
  });
});

it('has a view for each stream', () => {
  expect(streamOf(streamHref('live/a/b-1.c'))).toBe('live/a/b-1.c');
  expect(streamOf('#stream=live%2Fa')).toBe('live/a');
  for (const none of ['', '#', '#stream=', '#stream=vod/a.mp4', '#stream=live/../x', '#stream=%', '#other'])
    expect(streamOf(none)).toBeNull();
});

it('has one order of deliveries', () => {
  const counted = ['flv', 'new', 'push', 'llhls'].map((delivery) => ({ delivery }));
  expect(byDelivery(counted).map(({ delivery }) => delivery)).toEqual(['llhls', 'push', 'flv', 'new']);
});

it('says where the publisher is, if it has no session here', () => {
  const by = (protocol: string): Publisher => ({ peer: null, protocol, rendition: null, backup: false });
  expect(unlisted([])).toBe('Nobody publishes the stream to this server.');
  expect(unlisted([by('file')])).toBe('This server publishes the stream itself.');
  expect(unlisted([by('file'), by('ladder')])).toBe('This server publishes the stream itself.');
  // A copy has the publisher of the node that it copies from.
  expect(unlisted([by('rtmp')])).toBe('Its publisher is connected to another node.');
  expect(unlisted([by('ladder'), by('whip')])).toBe('Its publisher is connected to another node.');
});
