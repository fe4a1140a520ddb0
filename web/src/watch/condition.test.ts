import { describe, expect, it } from 'vitest';
import {
  condition,
  type Directory,
  type Facts,
  type Failure,
  type Happening,
  initialFacts,
  next,
  wantsEngine,
} from './condition';

const request = { stream: 'live/demo', recorded: false, unknownVia: null, capable: true };
const network: Failure = { kind: 'network', what: 'A segment could not be loaded.', detail: 'fragLoadError' };

function seen(directory: Directory, since = 1, missingCodecs: string[] = []): Happening {
  return { type: 'directory', directory, since, missingCodecs };
}

function factsAfter(...happenings: Happening[]): Facts {
  return happenings.reduce(next, initialFacts(request));
}

const playing: Happening[] = [
  seen('live'),
  { type: 'engine', engine: 'starting' },
  { type: 'engine', engine: 'playing' },
];

describe('what the viewer is told', () => {
  it('says what the address lacks', () => {
    expect(condition(initialFacts({ ...request, stream: null })).kind).toBe('bad-stream');
    const unknown = condition(initialFacts({ ...request, unknownVia: 'webrtc' }));
    expect(unknown.kind).toBe('bad-delivery');
    expect(unknown.message?.title).toContain('webrtc');
    expect(condition(initialFacts({ ...request, capable: false })).kind).toBe('incapable');
  });

  it('goes from connecting over starting to the bare picture', () => {
    expect(condition(factsAfter()).kind).toBe('looking');
    expect(condition(factsAfter(...playing.slice(0, 2))).kind).toBe('starting');
    expect(condition(factsAfter(...playing))).toEqual({ kind: 'playing', label: 'Playing', message: null });
    expect(condition(factsAfter(...playing, { type: 'engine', engine: 'waiting' })).kind).toBe('buffering');
  });

  it('tells a broadcast that has not begun from one that is over', () => {
    expect(condition(factsAfter(seen('absent'))).kind).toBe('not-begun');
    expect(condition(factsAfter(seen('ended'))).kind).toBe('ended');
    const gone = factsAfter(...playing, { type: 'engine', engine: 'waiting' }, seen('absent'));
    expect(condition(gone).kind).toBe('ended');
  });

  it('plays out what is buffered when the broadcast ends', () => {
    const ending = factsAfter(...playing, seen('ended'));
    expect(condition(ending).kind).toBe('playing');
    expect(wantsEngine(ending)).toBe(true);
    expect(condition(next(ending, { type: 'engine', engine: 'finished' })).kind).toBe('ended');
  });

  it('says at once that the publisher is lost, and keeps the engine', () => {
    const lost = factsAfter(...playing, seen('offline'));
    expect(condition(lost).kind).toBe('offline');
    expect(wantsEngine(lost)).toBe(true);
    expect(condition(next(lost, seen('live'))).kind).toBe('playing');
  });

  it('explains a failure by the publisher or the server where they are the cause', () => {
    const failed: Happening = { type: 'failed', failure: network };
    expect(condition(factsAfter(...playing, failed)).kind).toBe('failed');
    expect(condition(factsAfter(...playing, seen('offline'), failed)).kind).toBe('offline');
    expect(condition(factsAfter(...playing, seen('unreachable'), failed)).kind).toBe('unreachable');
    expect(condition(factsAfter(...playing, seen('ended'), failed)).kind).toBe('ended');
  });

  it('says what failed, in words, and offers to try again', () => {
    const { message } = condition(factsAfter(...playing, { type: 'failed', failure: network }));
    expect(message).toMatchObject({ text: network.what, detail: network.detail, retry: true });
  });

  it('names the codecs this browser lacks', () => {
    const facts = factsAfter(seen('live', 1, ['HEVC']));
    expect(condition(facts).kind).toBe('unsupported');
    expect(condition(facts).message?.title).toContain('HEVC');
    expect(wantsEngine(facts)).toBe(false);
  });

  it('goes on without a word when the server is out of reach but the picture moves', () => {
    expect(condition(factsAfter(...playing, seen('unreachable'))).kind).toBe('playing');
    expect(condition(factsAfter(seen('unreachable'))).kind).toBe('unreachable');
  });

  it('tells a server that answers with an error from one that is out of reach', () => {
    const title = (...happenings: Happening[]) => condition(factsAfter(...happenings)).message?.title;
    expect(title(seen('failing'))).toBe('The server answers with an error');
    expect(title(seen('unreachable'))).toBe('The server cannot be reached');
    // An error says nothing about the stream.
    expect(title(...playing, seen('failing'))).toBeUndefined();
    expect(factsAfter(seen('failing')).seen).toBe(false);
  });

  it('does not wait for the list of streams with a file', () => {
    const file = next(initialFacts({ ...request, stream: 'vod/film.mp4', recorded: true }), seen('absent'));
    expect(wantsEngine(file)).toBe(true);
    expect(condition({ ...file, engine: 'finished' }).message?.title).toBe('The end');
  });
});

describe('when an engine runs', () => {
  it('not before the broadcast has begun, and then by itself', () => {
    expect(wantsEngine(factsAfter())).toBe(false);
    expect(wantsEngine(factsAfter(seen('absent')))).toBe(false);
    expect(wantsEngine(factsAfter(seen('absent'), seen('live')))).toBe(true);
  });

  it('not while the publisher is lost, if it was never playing', () => {
    expect(wantsEngine(factsAfter(seen('offline')))).toBe(false);
    expect(wantsEngine(factsAfter(seen('unreachable')))).toBe(false);
  });

  it('anew when a failed broadcast comes back', () => {
    const failed = factsAfter(...playing, seen('offline'), { type: 'failed', failure: network });
    expect(wantsEngine(failed)).toBe(false);
    const back = next(failed, seen('live'));
    expect(wantsEngine(back)).toBe(true);
    expect(back.generation).toBe(failed.generation + 1);
    expect(back.failure).toBeNull();
  });

  it('anew for the next broadcast of the same name, not for the list lagging behind the end', () => {
    const finished = factsAfter(...playing, { type: 'engine', engine: 'finished' });
    expect(next(finished, seen('live', 1)).generation).toBe(finished.generation);
    expect(next(finished, seen('live', 2)).generation).toBe(finished.generation + 1);
  });

  it('does not disturb a picture that moves', () => {
    const facts = factsAfter(...playing);
    expect(next(facts, seen('live', 2)).generation).toBe(facts.generation);
    expect(next(facts, { type: 'stuck' }).generation).toBe(facts.generation);
  });

  it('anew when it is stuck although the publisher is there, not while the publisher is lost', () => {
    const waiting = factsAfter(...playing, { type: 'engine', engine: 'waiting' });
    expect(next(waiting, { type: 'stuck' }).generation).toBe(waiting.generation + 1);
    const lost = next(waiting, seen('offline'));
    expect(next(lost, { type: 'stuck' }).generation).toBe(lost.generation);
    expect(next(lost, seen('live', 1)).generation).toBe(lost.generation);
    expect(next(lost, seen('live', 2)).generation).toBe(lost.generation + 1);
  });

  it('anew when the network failed although the server is there, not when the server refused', () => {
    const failed = factsAfter(...playing, { type: 'failed', failure: network });
    expect(next(failed, { type: 'stuck' }).generation).toBe(failed.generation + 1);
    const away = next(failed, seen('unreachable'));
    expect(next(away, { type: 'stuck' }).generation).toBe(away.generation);
    for (const failure of [
      { ...network, refusedBy: '/live/x/index.m3u8' },
      { ...network, kind: 'media' as const },
    ]) {
      const refused = factsAfter(...playing, { type: 'failed', failure });
      expect(next(refused, { type: 'stuck' }).generation).toBe(refused.generation);
    }
  });

  it('anew when the engine has ended although the broadcast goes on, not when that is over', () => {
    // The publisher was away for a moment. The engine knew the end only after the return.
    const back = factsAfter(
      ...playing,
      { type: 'engine', engine: 'waiting' },
      seen('offline'),
      seen('live', 1),
    );
    const finished = next(back, { type: 'engine', engine: 'finished' });
    expect(finished.generation).toBe(back.generation);
    expect(next(finished, { type: 'stuck' }).generation).toBe(finished.generation + 1);
    const over = next(finished, seen('ended', 1));
    expect(next(over, { type: 'stuck' }).generation).toBe(over.generation);
    const title = { ...finished, recorded: true };
    expect(next(title, { type: 'stuck' }).generation).toBe(title.generation);
  });

  it('anew when the viewer asks, or chooses another delivery', () => {
    const failed = factsAfter(...playing, { type: 'failed', failure: network });
    expect(wantsEngine(next(failed, { type: 'retry' }))).toBe(true);
    const unknown = next(initialFacts({ ...request, unknownVia: 'push' }), seen('live'));
    expect(wantsEngine(unknown)).toBe(false);
    expect(wantsEngine(next(unknown, { type: 'via', unknownVia: null }))).toBe(true);
  });

  it('does not listen to an engine that has failed', () => {
    const failed = factsAfter(...playing, { type: 'failed', failure: network });
    expect(next(failed, { type: 'engine', engine: 'playing' }).engine).toBe('failed');
  });
});

describe('a track that is over', () => {
  const over: Happening = { type: 'track-over' };
  const waits: Happening = { type: 'engine', engine: 'waiting' };

  it('has the stream loaded anew once what is buffered was played', () => {
    const before = factsAfter(...playing, over);
    expect(before.generation).toBe(factsAfter(...playing).generation);
    const after = next(before, waits);
    expect(after.generation).toBe(before.generation + 1);
    expect(wantsEngine(after)).toBe(true);
    // This happens once: an engine that waits after that has another reason.
    const again = [{ type: 'engine', engine: 'playing' } as const, waits].reduce(next, after);
    expect(again.generation).toBe(after.generation);
  });

  it('does so at once for who waits already, and for an engine that fails for want of it', () => {
    const waiting = factsAfter(...playing, waits);
    expect(next(waiting, over).generation).toBe(waiting.generation + 1);
    const failed = factsAfter(...playing, over, { type: 'failed', failure: network });
    expect([failed.failure, failed.engine]).toEqual([null, 'idle']);
  });

  it('is no news where the whole broadcast is', () => {
    const before = factsAfter(...playing, seen('ended'), over, waits);
    expect(before.generation).toBe(factsAfter(...playing).generation);
  });
});
