import { describe, expect, it } from 'vitest';
import { BadAnswer } from '../shared/api';
import { folderHref, folderOf, nameOf, parseFolder, Turns, trail } from './titles';

const TITLE = { path: 'vod/a b.mp4', kind: 'file', size: 12, modified: '2026-11-20T18:30:00Z', viewers: 2 };

describe('parseFolder', () => {
  it('reads titles, opened or not', () => {
    const opened = {
      duration_seconds: 1.5,
      tracks: [{ name: 'v0', kind: 'video' }],
      poster: true,
      refusal: null,
    };
    const refused = { duration_seconds: null, tracks: [], poster: false, refusal: 'no moov' };
    const titles = [
      TITLE,
      { ...TITLE, opened },
      { ...TITLE, opened: refused },
      { path: 'vod/f', kind: 'folder' },
    ];
    const folder = parseFolder({ folder: 'vod', is_title: true, titles, next: 'x' });
    expect(folder).toMatchObject({ path: 'vod', isTitle: true, next: 'x' });
    const [first, second, third, fourth] = folder.titles;
    expect(first).toMatchObject({ size: 12, viewers: 2, opened: null, modified: new Date(TITLE.modified) });
    expect(second?.opened).toMatchObject({ duration: 1.5, poster: true, tracks: [{ name: 'v0' }] });
    expect(third?.opened).toMatchObject({ duration: null, poster: false, refusal: 'no moov' });
    expect(fourth).toMatchObject({ kind: 'folder', size: null, modified: null, viewers: 0 });
  });

  it.each([null, {}, { folder: 'vod' }, { folder: 'vod', titles: [{}] }])('refuses %j', (answer) => {
    expect(() => parseFolder(answer)).toThrow(BadAnswer);
  });
});

it.each(['vod', 'vod/a b', 'vod/100 %/#ü?', 'vod/a%2fb'])('the view of %s has an address', (folder) => {
  expect(folderOf(folderHref(folder))).toBe(folder);
});

it.each([
  '',
  '#all',
  '#stream=live/a',
  '#titles',
  '#titles=',
  '#titles=live/a',
  '#titles=vod/%zz',
  '#titles=vodka',
])('%s names no folder', (fragment) => expect(folderOf(fragment)).toBeNull());

it('names what is above', () => {
  expect(nameOf('vod/a/b.mp4')).toBe('b.mp4');
  expect(trail('vod/a/b')).toEqual([
    { path: 'vod', name: 'Titles' },
    { path: 'vod/a', name: 'a' },
    { path: 'vod/a/b', name: 'b' },
  ]);
});

it('tasks take turns, and those that nobody wants any more do not run', async () => {
  const turns = new Turns(1);
  const [wanted, left] = [new AbortController(), new AbortController()];
  const ran: string[] = [];
  let finish = () => {};
  const first = turns.take(wanted.signal, async () => {
    ran.push('first');
    await new Promise<void>((resolve) => (finish = resolve));
    throw new Error('broken');
  });
  const second = turns.take(left.signal, async () => ran.push('second'));
  const third = turns.take(wanted.signal, async () => ran.push('third'));
  left.abort();
  expect(ran).toEqual(['first']);
  finish();
  await expect(first).rejects.toThrow('broken');
  await expect(second).rejects.toThrow();
  await third;
  expect(ran).toEqual(['first', 'third']);
  await turns.take(wanted.signal, async () => ran.push('fourth'));
  expect(ran).toContain('fourth');
});
