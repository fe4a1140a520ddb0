import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Publication } from './publication';

/** A source of a device, or of a screen that its viewer may stop. */
class Track extends EventTarget {
  constructor(readonly kind: string) {
    super();
  }
  stop() {}
  end() {
    this.dispatchEvent(new Event('ended'));
  }
}

class Media {
  private tracks = new Set<Track>();
  addTrack(track: Track) {
    this.tracks.add(track);
  }
  removeTrack(track: Track) {
    this.tracks.delete(track);
  }
  getTracks() {
    return [...this.tracks];
  }
  getVideoTracks() {
    return this.getTracks().filter(({ kind }) => kind === 'video');
  }
}

function media(...kinds: string[]): Media {
  const all = new Media();
  for (const kind of kinds) all.addTrack(new Track(kind));
  return all;
}

/** What the page asked the browser for. */
let asked: string[];
/** The screens that were shared. */
let screens: Media[];

beforeEach(() => {
  [asked, screens] = [[], []];
  const mediaDevices = Object.assign(new EventTarget(), {
    enumerateDevices: async () => [],
    getDisplayMedia: async () => {
      asked.push('screen');
      screens.push(media('video'));
      return screens.at(-1);
    },
    getUserMedia: async ({ video, audio }: MediaStreamConstraints) => {
      const kinds = [...(video ? ['video'] : []), ...(audio ? ['audio'] : [])];
      asked.push(kinds.join());
      return media(...kinds);
    },
  });
  vi.stubGlobal('navigator', { mediaDevices });
  vi.stubGlobal('MediaStream', Media);
  vi.stubGlobal('addEventListener', () => {});
});

afterEach(() => vi.unstubAllGlobals());

it('shares a screen again that its viewer stopped, and only when that is chosen', async () => {
  const publication = new Publication('/live/a/whip');
  const choose = (change: object) => publication.choose({ ...publication.settings, ...change });
  const screen = { video: { kind: 'screen' } };
  await choose(screen);
  expect(asked).toEqual(['screen', 'audio']);
  screens[0]?.getTracks()[0]?.end();
  expect(publication.settings).toMatchObject({ video: { kind: 'none' }, audio: { kind: 'microphone' } });
  expect(publication.trouble).toBe('The video source has ended.');
  await choose({ bitrate: 1_000_000 });
  expect(asked).toEqual(['screen', 'audio']);
  await choose({ height: 1080 });
  expect(asked).toEqual(['screen', 'audio', 'audio']);
  await choose(screen);
  expect(asked).toEqual(['screen', 'audio', 'audio', 'screen', 'audio']);
  expect(publication.settings.video).toEqual({ kind: 'screen' });
});

it('keeps what was chosen where a source of the same kind ends meanwhile', async () => {
  const publication = new Publication('/live/a/whip');
  const screen = { kind: 'screen' } as const;
  await publication.choose({ ...publication.settings, video: screen });
  const chosen = publication.choose({ ...publication.settings, height: 1080 });
  screens[0]?.getTracks()[0]?.end();
  await chosen;
  expect(publication.settings).toMatchObject({ video: screen, height: 1080 });
  await publication.choose({ ...publication.settings, bitrate: 1_000_000 });
  expect(asked.filter((it) => it === 'screen')).toHaveLength(2);
});

it('opens what is chosen where the source before ends meanwhile', async () => {
  const publication = new Publication('/live/a/whip');
  await publication.choose({ ...publication.settings, video: { kind: 'screen' } });
  const camera = { kind: 'camera', id: null } as const;
  const chosen = publication.choose({ ...publication.settings, video: camera });
  screens[0]?.getTracks()[0]?.end();
  await chosen;
  expect(publication.settings.video).toEqual(camera);
  expect(publication.media.getVideoTracks()).toHaveLength(1);
});
