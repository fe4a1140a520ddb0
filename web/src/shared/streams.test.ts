import { describe, expect, it } from 'vitest';
import { deliveriesOf, isStream, parseWatchUrl, playerUrls, sourceUrl, watchUrl } from './streams';

const at = (path: string) => parseWatchUrl(new URL(path, 'http://origin.test:8080'));

describe('parseWatchUrl', () => {
  it.each([
    ['/watch/live/demo', 'live/demo'],
    ['/watch/live/demo/', 'live/demo'],
    ['/watch/live/a/b', 'live/a/b'],
    ['/watch/live/_x-1.y', 'live/_x-1.y'],
    ['/watch/vod/film.mp4', 'vod/film.mp4'],
    ['/watch/vod/a%20folder/b%C3%A4r.mp4', 'vod/a folder/bär.mp4'],
  ])('%s is %s', (path, stream) => {
    expect(at(path).stream).toBe(stream);
  });

  it.each([
    '/watch/',
    '/watch/live',
    '/watch/live//a',
    '/watch/live/.hidden',
    '/watch/live/a%2Fb',
    '/watch/live/a%20b',
    '/watch/other/a',
    '/watch/vod/%2e%2e%2fetc',
    '/watch/vod/%zz',
    '/watch/vod/a%00b',
    `/watch/live/${'a'.repeat(129)}`,
  ])('%s names no stream', (path) => {
    expect(at(path).stream).toBeNull();
  });

  it('reads the delivery, and tells what it does not have', () => {
    expect(at('/watch/live/demo')).toMatchObject({ via: 'llhls', askedVia: 'llhls' });
    expect(at('/watch/live/demo?via=')).toMatchObject({ via: 'llhls' });
    expect(at('/watch/live/demo?via=webrtc')).toMatchObject({ via: 'webrtc' });
    expect(at('/watch/vod/film.mp4?via=webrtc')).toMatchObject({ via: null, askedVia: 'webrtc' });
    expect(at('/watch/live/demo?via=dash')).toMatchObject({ via: 'dash' });
    expect(at('/watch/live/demo?via=hls')).toMatchObject({ via: 'hls' });
    expect(at('/watch/live/demo?via=srt')).toMatchObject({ via: null, askedVia: 'srt' });
  });
});

it('keeps to signed paths', () => {
  const page = at('/s/abc/watch/live/a/b?via=dash');
  expect(page).toMatchObject({ stream: 'live/a/b', via: 'dash', prefix: '/s/abc' });
  expect(at('/watch/live/demo').prefix).toBe('');
  expect(at('/s/watch/live/demo')).toMatchObject({ stream: null, prefix: '' });
  expect(sourceUrl('live/a', 'push', '/s/abc')).toBe('/s/abc/live/a/push');
  expect(watchUrl('live/a', 'push', '/s/abc')).toBe('/s/abc/watch/live/a?via=push');
  const urls = playerUrls('live/a', new URL('http://origin.test/s/abc/watch/live/a'));
  expect(urls.every(({ url }) => url.includes('/s/abc/live/a/'))).toBe(true);
});

it('keeps credentials', () => {
  const page = at('/watch/live/a?key=k&via=push');
  expect(page).toMatchObject({ via: 'push', credentials: { query: '?key=k' } });
  expect(sourceUrl('live/a', 'push', '', '?key=k')).toBe('/live/a/push?key=k');
  expect(sourceUrl('live/a', 'llhls', '', '?key=k')).toBe('/live/a/index.m3u8');
  expect(watchUrl('live/a', 'push', '', '?key=k&user=u')).toBe('/watch/live/a?via=push&key=k&user=u');
  expect(watchUrl('live/a', 'llhls', '', '?key=k')).toBe('/watch/live/a?key=k');
  const urls = playerUrls('live/a', new URL('http://origin.test/watch/live/a?via=dash&key=k'));
  expect(urls.map(({ label }) => label)).toEqual(['MP4', 'FLV', 'Push', 'RTMP']);
  expect(urls.every(({ url }) => url.endsWith('?key=k'))).toBe(true);
});

it('plays a file over HLS unless told otherwise: there is no latency to lower', () => {
  expect(at('/watch/vod/film.mp4')).toMatchObject({ via: 'hls' });
  expect(at('/watch/vod/film.mp4?via=llhls')).toMatchObject({ via: 'hls' });
  expect(at('/watch/vod/film.mp4?via=dash')).toMatchObject({ via: 'dash' });
  expect(watchUrl('vod/film.mp4', 'hls')).toBe('/watch/vod/film.mp4');
  expect(at('/watch/vod/film.mp4?via=file')).toMatchObject({ via: 'file' });
  expect(at('/watch/live/demo?via=file')).toMatchObject({ via: null, askedVia: 'file' });
  expect(deliveriesOf('vod/film.mp4').map(({ via }) => via)).toEqual(['hls', 'dash', 'push', 'file']);
  expect(deliveriesOf('vod/folder').map(({ via }) => via)).toEqual(['hls', 'dash', 'push']);
  expect(deliveriesOf('live/demo')).toHaveLength(5);
});

describe('addresses', () => {
  it('come back as they were given', () => {
    for (const stream of ['live/demo', 'live/a/b', 'vod/ü 100%/x?#.mp4']) {
      expect(isStream(stream)).toBe(true);
      const request = at(watchUrl(stream, 'dash'));
      expect(request).toMatchObject({ stream, via: 'dash' });
    }
    expect(watchUrl('live/demo')).toBe('/watch/live/demo');
  });

  it('name the manifest of each delivery', () => {
    expect(sourceUrl('live/demo', 'llhls')).toBe('/live/demo/index.m3u8');
    expect(sourceUrl('live/demo', 'webrtc')).toBe('/live/demo/whep');
    expect(sourceUrl('live/demo', 'hls')).toBe('/live/demo/index.m3u8');
    expect(sourceUrl('vod/a b.mp4', 'dash')).toBe('/vod/a%20b.mp4/manifest.mpd');
    expect(sourceUrl('live/demo', 'push')).toBe('/live/demo/push');
    expect(sourceUrl('vod/a b.mp4', 'file')).toBe('/vod/a%20b.mp4');
  });

  it('are given for other players: endless files and RTMP for a broadcast only', () => {
    const page = new URL('http://[::1]:8080/');
    expect(playerUrls('live/demo', page).map(({ url }) => url)).toEqual([
      'http://[::1]:8080/live/demo/index.m3u8',
      'http://[::1]:8080/live/demo/manifest.mpd',
      'http://[::1]:8080/live/demo/live.mp4',
      'http://[::1]:8080/live/demo/live.flv',
      'ws://[::1]:8080/live/demo/push',
      'rtmp://[::1]/live/demo',
    ]);
    expect(playerUrls('vod/x.mp4', page).map(({ label }) => label)).toEqual([
      'HLS',
      'DASH',
      'Push',
      'MP4',
      'RTMP',
    ]);
    expect(playerUrls('vod/folder', page).map(({ label }) => label)).toEqual(['HLS', 'DASH', 'Push']);
  });
});
