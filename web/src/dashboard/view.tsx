import { useEffect, useRef, useState } from 'preact/hooks';
import { type Overview, readOverview } from '../shared/api';
import { askTime } from '../shared/clock';
import { Messages, usePolled } from '../shared/polled';
import { ALL, StreamList } from './list';
import { Log } from './log';
import { changes, streamHref, streamOf, summary } from './model';
import { LastHour } from './overview';
import { serverClock } from './parts';
import { Publishing } from './publishing';
import { StreamView } from './stream';

/** The dashboard: the node's last hour, its streams, and what happens. Each stream has a view of its own. */
export function Dashboard() {
  const reading = usePolled(readOverview, changed);
  const shown = useFragment();
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => void askTime(serverClock, 3), []);
  // Who comes back to the list finds it as it was.
  const [choice, choose] = useState(ALL);
  const before = useRef(shown);
  useEffect(() => {
    document.title = shown === null ? 'headwater' : `${shown} – headwater`;
    const left = before.current;
    before.current = shown;
    // Screen readers are to notice another view. The page itself they read by themselves.
    if (left === shown) return;
    const link =
      left === null ? null : document.querySelector<HTMLElement>(`h3 a[href="${streamHref(left)}"]`);
    if (shown === null && link) return link.focus();
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [shown]);
  const streams = reading.value?.streams ?? null;
  const node = reading.value?.node ?? null;
  const empty = streams !== null && streams.length === 0;
  return (
    <>
      <header class="bar">
        <a class="home" href="#all" aria-current={shown === null ? 'page' : undefined}>
          headwater
        </a>
        <h1 ref={heading} tabIndex={-1}>
          {shown ?? 'Dashboard'}
        </h1>
        {shown !== null && <a href="#all">All streams</a>}
        {node !== null && <a href="/nodes">Nodes</a>}
        {streams && (
          <span class="summary" data-testid="summary">
            {summary(streams)}
          </span>
        )}
      </header>
      <main class="dashboard">
        <Messages {...reading} />
        {shown !== null && streams && (
          <StreamView key={shown} name={shown} stream={streams.find(({ name }) => name === shown) ?? null} />
        )}
        {shown === null && empty && (
          <section class="card empty" aria-labelledby="empty">
            <h2 id="empty">Nothing is live yet</h2>
            <p>Publish a stream to this server and it appears here by itself.</p>
            <Publishing />
          </section>
        )}
        {shown === null && streams && <LastHour />}
        {/* The log stays in the page, so that it need not begin anew after each look at a stream. */}
        <div class="sides" hidden={shown !== null}>
          {streams && !empty && (
            <div class="main">
              {shown === null && <StreamList streams={streams} choice={choice} choose={choose} />}
              <details class="card how">
                <summary>How to publish</summary>
                <Publishing />
              </details>
            </div>
          )}
          <Log />
        </div>
      </main>
    </>
  );
}

const changed = (before: Overview, after: Overview) => changes(before.streams, after.streams);

/** The stream that the page's address names, as it changes. */
function useFragment(): string | null {
  const [shown, setShown] = useState(() => streamOf(location.hash));
  useEffect(() => {
    const changed = () => setShown(streamOf(location.hash));
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return shown;
}
