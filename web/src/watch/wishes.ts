import type { Choice, Choices, Engine } from './engines/engine';

type Kind = 'audio' | 'subtitles' | 'renditions';

/** A chosen track, its place among the tracks of its kind, how many these are, and whether only it has its name. */
interface Wish {
  choice: Choice;
  place: number;
  of: number;
  unique: boolean;
}

/**
 * What the viewer chose to hear, to read and to see. Choices outlive their engine. Each engine numbers its tracks in
 * its own way, and may give them other labels, or have others.
 */
export class Wishes {
  private readonly wished = new Map<Kind, Wish | null>();

  /** Lets the engine play the track `id` of its choices, or none, and notes that for later engines. */
  choose(engine: Engine, kind: Kind, id: number | null): void {
    const tracks = engine.choices()[kind];
    const place = tracks.findIndex((track) => track.id === id);
    const choice = tracks[place];
    if (choice) {
      const unique = tracks.filter((track) => name(track) === name(choice)).length === 1;
      this.wished.set(kind, { choice, place, of: tracks.length, unique });
    } else if (id === null) this.wished.set(kind, null);
    else return;
    play(engine, kind, id);
  }

  /**
   * Lets a new engine, whose tracks are known, play what the viewer chose, as far as it has that. Returns whether this
   * changes what it plays.
   */
  repeat(engine: Engine): boolean {
    const choices = engine.choices();
    let changes = false;
    for (const [kind, wish] of this.wished) {
      const id = wish === null ? null : found(choices, kind, wish)?.id;
      if (id === undefined || id === chosen(choices, kind)) continue;
      play(engine, kind, id);
      changes = true;
    }
    return changes;
  }

  /** Later engines play what they play by themselves. */
  forget(): void {
    this.wished.clear();
  }
}

/** The track that a wish is for: the one of its name. Where that does not tell, tracks are in the same order everywhere. */
function found(choices: Choices, kind: Kind, { choice, place, of, unique }: Wish): Choice | undefined {
  const tracks = choices[kind];
  const same = tracks.filter((track) => name(track) === name(choice));
  const tells = unique && same.length === 1;
  const isSameList = kind !== 'renditions' && tracks.length === of;
  return tells || !isSameList ? same[0] : tracks[place];
}

function name({ key, label }: Choice): string {
  return key ?? label;
}

function chosen(choices: Choices, kind: Kind): number | null {
  if (kind === 'audio') return choices.chosenAudio;
  return kind === 'subtitles' ? choices.chosenSubtitles : choices.chosenRendition;
}

function play(engine: Engine, kind: Kind, id: number | null): void {
  if (kind === 'subtitles') engine.chooseSubtitles(id);
  else if (kind === 'renditions') engine.chooseRendition?.(id);
  else if (id !== null) engine.chooseAudio(id);
}
