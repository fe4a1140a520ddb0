import { useEffect, useRef, useState } from 'preact/hooks';
import { type Overview, readOverview } from '../shared/api';
import { askTime } from '../shared/clock';
import { Messages, usePolled } from '../shared/polled';
import { ALL, StreamList } from './list';
import { Events, ServerLog } from './log';
import { changes, streamHref, streamOf, summary } from './model';
import { LastHour } from './overview';
import { serverClock } from './parts';
import { Publishing } from './publishing';
import { Shelf } from './shelf';
import { StreamView } from './stream';
import { folderHref, folderOf } from './titles';

/** The dashboard: the node's last hour, its streams, and what happens. Each stream has a view of its own. */
export function Dashboard() {
  const reading = usePolled(readOverview, changed);
  const { stream: shown, folder } = useFragment();
  const isOverview = shown === null && folder === null;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => void askTime(serverClock, 3), []);
  // Who comes back to the list finds it as it was.
  const [choice, choose] = useState(ALL);
  const place = folder ?? shown;
  const before = useRef(place);
  useEffect(() => {
    document.title = place === null ? 'headwater' : `${folder === null ? shown : 'Titles'} – headwater`;
    const left = before.current;
    before.current = place;
    // Screen readers are to notice another view. The page itself they read by themselves.
    if (left === place) return;
    const link =
      left === null
        ? null
        : document.querySelector<HTMLElement>(`h3 a[href="${CSS.escape(streamHref(left))}"]`);
    if (place === null && link) return link.focus();
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [place]);
  const streams = reading.value?.streams ?? null;
  const node = reading.value?.node ?? null;
  const empty = streams !== null && streams.length === 0;
  return (
    <>
      <header class="bar">
        <a class="home" href="#all" aria-current={isOverview ? 'page' : undefined}>
          headwater
        </a>
        <h1 ref={heading} tabIndex={-1}>
          {shown ?? (folder === null ? 'Dashboard' : 'Titles on disk')}
        </h1>
        {!isOverview && <a href="#all">All streams</a>}
        {folder === null && <a href={folderHref('vod')}>Titles</a>}
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
        {folder !== null && <Shelf key={folder} folder={folder} />}
        {isOverview && empty && (
          <section class="card empty" aria-labelledby="empty">
            <h2 id="empty">Nothing is live yet</h2>
            <p>Publish a stream to this server and it appears here by itself.</p>
            <Publishing />
          </section>
        )}
        {isOverview && streams && <LastHour />}
        {/* The log stays in the page, so that it need not begin anew after each look at a stream. */}
        <div class="sides" hidden={!isOverview}>
          {streams && !empty && (
            <div class="main">
              {isOverview && <StreamList streams={streams} choice={choice} choose={choose} />}
              <details class="card how">
                <summary>How to publish</summary>
                <Publishing />
              </details>
            </div>
          )}
          <Events />
        </div>
        {isOverview && <ServerLog />}
      </main>
    </>
  );
}

const changed = (before: Overview, after: Overview) => changes(before.streams, after.streams);

/** The stream or the folder that the page's address names, as it changes. */
function useFragment(): { stream: string | null; folder: string | null } {
  const read = () => ({ stream: streamOf(location.hash), folder: folderOf(location.hash) });
  const [shown, setShown] = useState(read);
  useEffect(() => {
    const changed = () => setShown(read());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return shown;
}
