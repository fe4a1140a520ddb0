import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import * as format from '../shared/format';
import { endSession, type Session, type Sessions } from './api';
import { clock, endOf, inPlace, type Key, press, type Sorting, sorted } from './sessions';

/** So many rows are shown at first, and so many more each time that more are asked for. */
const ROWS = 50;

const HEADINGS: { key: Key; label: string; figure?: boolean }[] = [
  { key: 'protocol', label: 'By' },
  { key: 'peer', label: 'Address' },
  { key: 'since', label: 'Since' },
  { key: 'bytes', label: 'Bytes', figure: true },
  { key: 'behind', label: 'Behind', figure: true },
  { key: 'rendition', label: 'Rendition' },
];

/** Deliveries without a connection that could be cut. */
const BY_REQUESTS = ['llhls', 'hls', 'dash'];

interface Props {
  id: string;
  title: string;
  sessions: Sessions | null;
  /** Columns that say nothing here. */
  without?: readonly Key[];
  /** Said where there are none. */
  none: string;
  /** Whether these have ended. */
  over?: boolean;
  sorting: Sorting;
}

/** Publishers or viewers one by one. Open sessions can be ended. */
export function SessionTable({ id, title, sessions, without = [], none, over = false, ...at }: Props) {
  const [sorting, setSorting] = useState(at.sorting);
  const [most, setMost] = useState(ROWS);
  const [asked, setAsked] = useState<Session | null>(null);
  const [said, setSaid] = useState('');
  const heading = useRef<HTMLHeadingElement>(null);
  // Rows keep their places until another sorting is asked for.
  const order = useRef<{ sorting: Sorting; ids: number[] } | null>(null);
  const rows = useMemo(() => {
    const all = sessions?.sessions ?? [];
    // Those that ended come in the order in which they ended.
    if (over && sorting === at.sorting) return all;
    const rows =
      order.current?.sorting === sorting && !over ? inPlace(all, order.current.ids) : sorted(all, sorting);
    order.current = { sorting, ids: rows.map(({ id }) => id) };
    return rows;
  }, [sessions, sorting]);
  const headings = HEADINGS.filter(({ key }) => !without.includes(key));
  const total = (sessions?.sessions.length ?? 0) + (sessions?.leftOut ?? 0);
  const now = new Date();
  const end = async ({ id, peer }: Session) => {
    setAsked(null);
    // The row and its button will be gone.
    heading.current?.focus();
    const whom = peer ?? `Session ${id}`;
    try {
      await endSession(id);
      setSaid(`${whom} was disconnected.`);
    } catch (error) {
      setSaid(`${whom} was not disconnected: ${error instanceof Error ? error.message : String(error)}.`);
    }
  };
  return (
    <section class="card" aria-labelledby={id}>
      <header class="over">
        <h2 id={id} ref={heading} tabIndex={-1}>
          {title}
        </h2>
        {sessions && total > 0 && <span class="faint">{format.whole(total)}</span>}
        <p class="said" aria-live="polite" data-testid={`${id}-said`}>
          {said}
        </p>
      </header>
      {sessions && rows.length === 0 && <p class="faint">{none}</p>}
      {rows.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls sideways must be reachable by keyboard
        <section class="rows" tabIndex={0} aria-label={`Table of ${title.toLowerCase()}`}>
          <table>
            <thead>
              <tr>
                {headings.map(({ key, label, figure }) => {
                  const by = sorting.key === key && !(over && sorting === at.sorting);
                  const direction = sorting.descending ? 'descending' : 'ascending';
                  return (
                    <th
                      key={key}
                      scope="col"
                      class={figure ? 'figure' : ''}
                      aria-sort={by ? direction : 'none'}
                    >
                      <button type="button" onClick={() => setSorting(press(sorting, key))}>
                        {label}
                        <span class="arrow" aria-hidden="true">
                          {by ? (sorting.descending ? '▼' : '▲') : ''}
                        </span>
                      </button>
                    </th>
                  );
                })}
                {over ? (
                  <>
                    <th scope="col">Ended</th>
                    <th scope="col">Why</th>
                  </>
                ) : (
                  <th scope="col" class="act">
                    <span class="sr-only">Action</span>
                  </th>
                )}
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, most).map((session) => (
                <tr key={session.id} data-session={session.id}>
                  {headings.map(({ key, figure }) => (
                    <td key={key} class={figure ? 'figure' : ''}>
                      <Value of={key} session={session} now={now} />
                    </td>
                  ))}
                  {over ? (
                    <>
                      <td>{session.ended?.at ? clock(session.ended.at, now) : format.UNKNOWN}</td>
                      <td class="why">{endOf(session)}</td>
                    </>
                  ) : (
                    <td class="act">
                      <button type="button" class="quiet" onClick={() => setAsked(session)}>
                        End
                        <span class="sr-only">
                          {' '}
                          {format.delivery(session.protocol)} {session.peer ?? session.id}
                        </span>
                      </button>
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {rows.length > most && (
        <p class="rest">
          <button type="button" class="quiet" onClick={() => setMost(most + ROWS)}>
            Show {format.whole(Math.min(rows.length - most, ROWS))} more
          </button>
        </p>
      )}
      {sessions && sessions.leftOut > 0 && rows.length <= most && (
        <p class="faint">and {format.whole(sessions.leftOut)} more, which the API lists</p>
      )}
      {sessions && sessions.onlyCounted > 0 && (
        <p class="faint">{format.whole(sessions.onlyCounted)} more by HLS or DASH, which are only counted</p>
      )}
      {asked && <Confirm session={asked} end={() => void end(asked)} keep={() => setAsked(null)} />}
    </section>
  );
}

function Value({ of, session, now }: { of: Key; session: Session; now: Date }) {
  switch (of) {
    case 'protocol':
      return <>{format.delivery(session.protocol)}</>;
    case 'peer':
      return session.peer === null ? <span class="faint">hidden</span> : <code>{session.peer}</code>;
    case 'since':
      return session.since ? (
        <time dateTime={session.since.toISOString()}>{clock(session.since, now)}</time>
      ) : (
        format.UNKNOWN
      );
    case 'bytes':
      return <>{format.bytes(session.bytes)}</>;
    case 'behind':
      return <>{format.seconds(session.behind)}</>;
    case 'rendition':
      return <>{session.rendition ?? format.UNKNOWN}</>;
  }
}

/** Asks whether a session is to be ended. Escape keeps it. The browser returns the focus to the button. */
function Confirm({ session, end, keep }: { session: Session; end: () => void; keep: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const who = session.action === 'publish' ? 'publisher' : 'viewer';
  return (
    <dialog ref={dialog} aria-labelledby="confirm" aria-describedby="confirm-about" onClose={keep}>
      <h2 id="confirm">Disconnect this {who}?</h2>
      <p>
        {format.delivery(session.protocol)}
        {session.peer !== null && (
          <>
            {' '}
            from <code>{session.peer}</code>
          </>
        )}
        {session.since && `, since ${clock(session.since, new Date())}`}
      </p>
      <p id="confirm-about" class="faint">
        {BY_REQUESTS.includes(session.protocol)
          ? 'For an hour, this stream is refused to the viewer, and to others with the same address and browser.'
          : `The ${who} may come again at once.`}{' '}
        Rules in the server’s [access] keep it out.
      </p>
      <div class="choices">
        <button type="button" class="quiet" onClick={() => dialog.current?.close()}>
          Keep
        </button>
        <button
          type="button"
          class="danger"
          onClick={() => {
            // Nothing behind an open dialog takes the focus.
            dialog.current?.close();
            end();
          }}
        >
          End session
        </button>
      </div>
    </dialog>
  );
}
