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

  it('tell tracks with the same label apart by their number', () => {
    const wishes = new Wishes();
    wishes.choose(engineOf({ audio: tracks(['English', 'English']) }).engine, 'audio', 1);
    const after = engineOf({ audio: tracks(['English', 'English']), chosenAudio: 0 });
    wishes.repeat(after.engine);
    expect(after.orders).toEqual(['audio 1']);
  });
});
