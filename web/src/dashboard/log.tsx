import { useState } from 'preact/hooks';
import { add, chosen, KINDS, type Kind, type Line, NAMES, parseEvent } from './events';
import { CONNECTION, type Connection, type Source, useFollowed } from './follow';
import { streamHref } from './model';
import { Mark } from './parts';
import { addEntries, type Entry, important, parseEntry } from './server-log';
import { clock } from './sessions';

const EVENTS: Source<Line> = { path: '/api/v1/events', names: NAMES, parse: parseEvent, add };
const ENTRIES: Source<Entry> = { path: '/api/v1/log', names: ['line'], parse: parseEntry, add: addEntries };

/** What happened last, the newest first. */
export function Events() {
  const { lines, lost, connection } = useFollowed(EVENTS);
  const [hidden, setHidden] = useState<ReadonlySet<Kind>>(new Set());
  const shown = chosen(lines, hidden);
  const toggle = (kind: Kind) => {
    const next = new Set(hidden);
    if (!next.delete(kind)) next.add(kind);
    setHidden(next);
  };
  const now = new Date();
  return (
    <section class="log" aria-labelledby="events">
      <header class="over">
        <h2 id="events">Events</h2>
        <Following connection={connection} id="connection" />
      </header>
      <div class="card">
        <fieldset class="chips">
          <legend class="sr-only">Events to show</legend>
          {Object.entries(KINDS).map(([kind, label]) => (
            <label key={kind} class="chip">
              <input
                type="checkbox"
                checked={!hidden.has(kind as Kind)}
                onChange={() => toggle(kind as Kind)}
              />
              {label}
            </label>
          ))}
        </fieldset>
        {lost > 0 && <p class="faint">{lost} earlier events are no longer kept.</p>}
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
        <section class="tail" tabIndex={0} aria-label="Newest events">
          {shown.length === 0 && <p class="faint">Nothing has happened yet.</p>}
          <ol>
            {shown.map(({ key, at, tone, stream, text }) => (
              <li key={key}>
                <Mark tone={tone} />
                <p>
                  {stream !== null && (
                    <>{stream.startsWith('live/') ? <a href={streamHref(stream)}>{stream}</a> : stream} </>
                  )}
                  {text}
                </p>
                {at && <time dateTime={at.toISOString()}>{clock(at, now)}</time>}
              </li>
            ))}
          </ol>
        </section>
      </div>
    </section>
  );
}

/** The log of the server, the newest line first. It is followed only while it is open. */
export function ServerLog() {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="card how" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Log of the server</summary>
      {isOpen && <Entries />}
    </details>
  );
}

function Entries() {
  const { lines, lost, connection } = useFollowed(ENTRIES);
  const [isShort, setShort] = useState(false);
  const shown = isShort ? lines.filter(important) : lines;
  return (
    <>
      <div class="over">
        <label class="chip">
          <input type="checkbox" checked={isShort} onChange={() => setShort(!isShort)} />
          Only warnings and errors
        </label>
        <Following connection={connection} id="log-connection" />
      </div>
      {lost > 0 && <p class="faint">{lost} earlier lines are no longer kept.</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <section class="tail lines" tabIndex={0} aria-label="Newest lines of the log">
        {shown.length === 0 && <p class="faint">No line yet.</p>}
        <ol>
          {shown.map(({ key, tone, text }) => (
            <li key={key}>
              {tone === null ? <span /> : <Mark tone={tone} />}
              <code>{text}</code>
            </li>
          ))}
        </ol>
      </section>
    </>
  );
}

function Following({ connection, id }: { connection: Connection; id: string }) {
  return (
    <p class={`connection connection-${connection}`} aria-live="polite" data-testid={id}>
      {CONNECTION[connection]}
    </p>
  );
}
