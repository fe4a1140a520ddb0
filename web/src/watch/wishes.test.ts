import { describe, expect, it } from 'vitest';
import { type Choice, type Choices, type Engine, NO_CHOICES, NO_STATS } from './engines/engine';
import { Wishes } from './wishes';

/** Tracks with these labels, numbered from `first`. */
function tracks(labels: readonly string[], first = 0): Choice[] {
  return labels.map((label, at) => ({ id: first + at, label }));
}

/** An engine with these tracks, which notes what it is to play. */
function engineOf(given: Partial<Choices>) {
  const orders: string[] = [];
  const choices: Choices = { ...NO_CHOICES, ...given };
  const engine: Engine = {
    name: 'test',
    stats: () => NO_STATS,
    choices: () => choices,
    chooseAudio(id) {
      orders.push(`audio ${id}`);
      choices.chosenAudio = id;
    },
    chooseSubtitles(id) {
      orders.push(`subtitles ${id}`);
      choices.chosenSubtitles = id;
    },
    chooseRendition(id) {
      orders.push(`rendition ${id}`);
      choices.chosenRendition = id;
    },
    goLive: () => undefined,
    hold: () => undefined,
    destroy: () => undefined,
  };
  return { engine, orders };
}

describe('the choices of the viewer', () => {
  it('are played by the next engine, which numbers its tracks anew', () => {
    const wishes = new Wishes();
    const before = engineOf({ audio: tracks(['English', 'German']), subtitles: tracks(['English']) });
    wishes.choose(before.engine, 'audio', 1);
    wishes.choose(before.engine, 'subtitles', 0);
    expect(before.orders).toEqual(['audio 1', 'subtitles 0']);

    const after = engineOf({
      audio: tracks(['German', 'English'], 7),
      chosenAudio: 8,
      subtitles: tracks(['French', 'English']),
    });
    wishes.repeat(after.engine);
    expect(after.orders).toEqual(['audio 7', 'subtitles 1']);
  });

  it('leave alone what an engine plays anyway, does not have, or was not asked for', () => {
    const wishes = new Wishes();
    const before = engineOf({
      audio: tracks(['English', 'German']),
      subtitles: tracks(['English']),
      chosenSubtitles: 0,
      renditions: tracks(['720p', '360p']),
    });
    wishes.choose(before.engine, 'audio', 1);
    wishes.choose(before.engine, 'renditions', 1);

    const after = engineOf({
      audio: tracks(['English', 'German']),
      chosenAudio: 1,
      subtitles: tracks(['English']),
      chosenSubtitles: 0,
      renditions: tracks(['1080p']),
    });
    wishes.repeat(after.engine);
    expect(after.orders).toEqual([]);
    const third = engineOf({ renditions: tracks(['720p', '360p']) });
    wishes.repeat(third.engine);
    expect(third.orders).toEqual(['rendition 1']);
  });

  it('may be to have no subtitles, and to leave the rendition to the server', () => {
    const wishes = new Wishes();
    const before = engineOf({ subtitles: tracks(['English']), chosenSubtitles: 0 });
    wishes.choose(before.engine, 'subtitles', null);
    wishes.choose(before.engine, 'renditions', null);

    const after = engineOf({ subtitles: tracks(['English']), chosenSubtitles: 0 });
    wishes.repeat(after.engine);
    expect(after.orders).toEqual(['subtitles null']);
  });

  it('are in the same place where labels do not tell', () => {
    const wishes = new Wishes();
    wishes.choose(engineOf({ audio: tracks(['German', 'German'], 2) }).engine, 'audio', 3);
    for (const labels of [
      ['German', 'German'],
      ['German', 'de 2'],
      ['a0', 'a1'],
    ]) {
      const after = engineOf({ audio: tracks(labels), chosenAudio: 0 });
      expect(wishes.repeat(after.engine)).toBe(true);
      expect(after.orders).toEqual(['audio 1']);
    }
    const other = engineOf({ audio: tracks(['a0', 'a1', 'a2']), chosenAudio: 0 });
    expect(wishes.repeat(other.engine)).toBe(false);
  });

  it('are for a rendition whatever its bit rate is by now', () => {
    const wishes = new Wishes();
    const rendition = (rate: number) => ({
      renditions: [{ id: 0, key: 'v1', label: `360p, ${rate} kbit/s` }],
    });
    wishes.choose(engineOf(rendition(598)).engine, 'renditions', 0);
    const after = engineOf(rendition(612));
    wishes.repeat(after.engine);
    expect(after.orders).toEqual(['rendition 0']);
  });

  it('can be forgotten', () => {
    const wishes = new Wishes();
    wishes.choose(engineOf({ audio: tracks(['English', 'German']) }).engine, 'audio', 1);
    wishes.forget();
    const after = engineOf({ audio: tracks(['English', 'German']), chosenAudio: 0 });
    expect(wishes.repeat(after.engine)).toBe(false);
    expect(after.orders).toEqual([]);
  });
});
