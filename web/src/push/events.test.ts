import { describe, expect, it } from 'vitest';
import { parseEvent } from './events';

describe('parseEvent', () => {
  it('reads what docs/push.md promises', () => {
    const hello = parseEvent(
      '{"event":"hello","renditions":[{"name":"v0","bitrate":1192010,"resolution":"1280x720","codecs":"avc1.64001f"}],' +
        '"rendition":"v0","audio":{"name":"a0","bitrate":104559,"codecs":"mp4a.40.2"},"timescale":90000}',
    );
    expect(hello).toEqual({
      event: 'hello',
      renditions: [{ name: 'v0', bitrate: 1_192_010, resolution: '1280x720', codecs: 'avc1.64001f' }],
      rendition: 'v0',
      audio: 'mp4a.40.2',
      duration: null,
    });
    expect(parseEvent('{"event":"rendition","rendition":"v1"}')).toEqual({
      event: 'rendition',
      rendition: 'v1',
    });
    expect(parseEvent('{"event":"discontinuity","reason":"seek"}')).toEqual({
      event: 'discontinuity',
      reason: 'seek',
    });
    expect(parseEvent('{"event":"end"}')).toEqual({ event: 'end' });
    expect(parseEvent('{"event":"error","code":"slow","message":"you read too slowly"}')).toMatchObject({
      code: 'slow',
    });
  });

  it('reads a file, and audio alone', () => {
    expect(parseEvent('{"event":"hello","renditions":[],"rendition":null,"duration":12.5}')).toEqual({
      event: 'hello',
      renditions: [],
      rendition: null,
      audio: null,
      duration: 12.5,
    });
  });

  it.each(['', 'x', 'null', '3', '[]', '{}', '{"event":7}', '{"event":"later"}', '{"event":"rendition"}'])(
    'passes over %j',
    (text) => {
      expect(parseEvent(text)).toBeNull();
    },
  );

  it('takes nothing for granted within what it knows', () => {
    expect(parseEvent('{"event":"hello","renditions":[null,3,{"name":4}],"audio":5,"duration":"x"}')).toEqual(
      {
        event: 'hello',
        renditions: [0, 1, 2].map(() => ({ name: '', bitrate: 0, resolution: null, codecs: '' })),
        rendition: null,
        audio: null,
        duration: null,
      },
    );
  });
});
