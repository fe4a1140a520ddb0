import type { Choice, Engine } from './engines/engine';

type Kind = 'audio' | 'subtitles' | 'renditions';

/**
 * What the viewer chose to hear, to read and to see. Choices outlive their engine. The next engine may number its
 * tracks differently, or have others, so that a track is known by its label.
 */
export class Wishes {
  private readonly wished = new Map<Kind, Choice | null>();

  /** Lets the engine play the track `id` of its choices, or none, and notes that for later engines. */
  choose(engine: Engine, kind: Kind, id: number | null): void {
    const choice = id === null ? null : engine.choices()[kind].find((one) => one.id === id);
    if (choice === undefined) return;
    this.wished.set(kind, choice);
    play(engine, kind, id);
  }

  /** Lets a new engine, whose tracks are known, play what the viewer chose, as far as it has that. */
  repeat(engine: Engine): void {
    const choices = engine.choices();
    const playing = {
      audio: choices.chosenAudio,
      subtitles: choices.chosenSubtitles,
      renditions: choices.chosenRendition,
    };
    for (const [kind, wish] of this.wished) {
      const found = wish === null ? null : alike(choices[kind], wish);
      const id = found === null ? null : found?.id;
      if (id !== undefined && id !== playing[kind]) play(engine, kind, id);
    }
  }
}

/** The track with the label of `wish`. If several have it, then the one with the same number, or the first. */
function alike(choices: readonly Choice[], { id, label }: Choice): Choice | undefined {
  const same = choices.filter((choice) => choice.label === label);
  return same.find((choice) => choice.id === id) ?? same[0];
}

function play(engine: Engine, kind: Kind, id: number | null): void {
  if (kind === 'subtitles') engine.chooseSubtitles(id);
  else if (kind === 'renditions') engine.chooseRendition?.(id);
  else if (id !== null) engine.chooseAudio(id);
}
