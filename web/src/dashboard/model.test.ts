import { describe, expect, it } from 'vitest';
import { parseStreams, type Stream, type StreamState } from '../shared/api';
import { changes, describeTrack, inOrder, publishing, summary } from './model';

function stream(name: string, state: StreamState, viewers = {}): Stream {
  const [parsed] = parseStreams({ streams: [{ name, state, viewers }] });
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
