import type { Stream } from '../shared/api';
import * as format from '../shared/format';
import { watchUrl } from '../shared/streams';
import { found, inOrder, SEARCHED, STREAMS_AT_ONCE, streamHref, warningsOf } from './model';
import { Facts, State } from './parts';

/** Which streams are shown. */
export interface Choice {
  /** A part of their names. */
  wanted: string;
  onlyWarned: boolean;
  /** How many at most. */
  most: number;
}

export const ALL: Choice = { wanted: '', onlyWarned: false, most: STREAMS_AT_ONCE };

interface Props {
  streams: readonly Stream[];
  choice: Choice;
  choose: (choice: Choice) => void;
}

/** The streams. Of very many some are shown, and the others are found by name. */
export function StreamList({ streams, choice, choose }: Props) {
  const { wanted, onlyWarned, most } = choice;
  const warned = streams.filter((stream) => warningsOf(stream) > 0).length;
  const these = inOrder(found(streams, wanted, onlyWarned));
  const left = these.length - most;
  return (
    <section aria-labelledby="streams">
      <header class="over">
        <h2 id="streams">Streams</h2>
        {(warned > 0 || onlyWarned) && (
          <label class="chip">
            <input
              type="checkbox"
              checked={onlyWarned}
              onChange={({ currentTarget }) => choose({ ...choice, onlyWarned: currentTarget.checked })}
            />
            only with warnings ({format.whole(warned)})
          </label>
        )}
        {(streams.length >= SEARCHED || wanted !== '') && (
          <input
            class="search"
            type="search"
            placeholder="Find by name"
            aria-label="Find streams by name"
            value={wanted}
            onInput={({ currentTarget }) => choose({ ...choice, wanted: currentTarget.value })}
          />
        )}
      </header>
      {these.length === 0 && <p class="card faint">No stream is like that.</p>}
      <ul class="streams" aria-label="Streams">
        {these.slice(0, most).map((stream) => (
          <li key={stream.name}>
            <StreamCard stream={stream} />
          </li>
        ))}
      </ul>
      {left > 0 && (
        <p class="rest">
          <button
            type="button"
            class="quiet"
            onClick={() => choose({ ...choice, most: most + STREAMS_AT_ONCE })}
          >
            Show {format.whole(Math.min(left, STREAMS_AT_ONCE))} of {format.counted(left, 'further stream')}
          </button>
        </p>
      )}
    </section>
  );
}

function StreamCard({ stream }: { stream: Stream }) {
  const id = `stream-${stream.name.replaceAll('/', '-')}`;
  return (
    <article class="card stream" aria-labelledby={id} data-stream={stream.name}>
      <header>
        <h3 id={id}>
          <a href={streamHref(stream.name)}>{stream.name}</a>
        </h3>
        <State stream={stream} />
        <a class="watch" href={watchUrl(stream.name)}>
          Watch<span class="sr-only"> {stream.name}</span>
        </a>
      </header>
      <Facts stream={stream} heading="h4" />
    </article>
  );
}
