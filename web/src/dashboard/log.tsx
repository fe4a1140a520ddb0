import { useEffect, useState } from 'preact/hooks';
import { add, chosen, KINDS, type Kind, type Line, NAMES, parseEvent } from './events';
import { streamHref } from './model';
import { Mark } from './parts';
import { clock } from './sessions';

/** Lines are drawn so often at most, in milliseconds, however many events there are. */
const DRAWN = 250;
/** After so many milliseconds the page tries again where the browser gives up. */
const AGAIN = 5_000;

type Connection = 'connecting' | 'open' | 'cut';

const CONNECTION: Record<Connection, string> = {
  connecting: 'connecting…',
  open: 'following',
  cut: 'cut off, trying again…',
};

/** What happened last, the newest first. */
export function Log() {
  const { lines, lost, connection } = useEvents();
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
        <p class={`connection connection-${connection}`} aria-live="polite" data-testid="connection">
          {CONNECTION[connection]}
        </p>
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

/** Follows the events, from the oldest that the server has. Connects again by itself. */
function useEvents(): { lines: Line[]; lost: number; connection: Connection } {
  const [log, setLog] = useState<{ lines: Line[]; lost: number }>({ lines: [], lost: 0 });
  const [connection, setConnection] = useState<Connection>('connecting');
  useEffect(() => {
    let source: EventSource;
    let again: ReturnType<typeof setTimeout> | undefined;
    let drawing: ReturnType<typeof setTimeout> | undefined;
    let news: Line[] = [];
    let [key, last, missed] = [0, '0', 0];
    const draw = () => {
      drawing ??= setTimeout(() => {
        drawing = undefined;
        const [lines, more] = [news, missed];
        [news, missed] = [[], 0];
        setLog((log) => ({ lines: add(log.lines, lines), lost: log.lost + more }));
      }, DRAWN);
    };
    const take = ({ data, lastEventId }: MessageEvent<string>) => {
      if (lastEventId !== '') last = lastEventId;
      const line = parseEvent(data);
      if (!line) return;
      news.push({ ...line, key: key++ });
      draw();
    };
    const skip = ({ data }: MessageEvent<string>) => {
      missed += Number(/\d+/.exec(data)?.[0] ?? 0);
      draw();
    };
    const follow = () => {
      source = new EventSource(`/api/v1/events?after=${last}`);
      for (const name of NAMES) source.addEventListener(name, take);
      source.addEventListener('lost', skip);
      source.addEventListener('open', () => setConnection('open'));
      source.addEventListener('error', () => {
        setConnection('cut');
        // The browser tries again after a broken connection, but not after a refusal.
        if (source.readyState !== EventSource.CLOSED) return;
        clearTimeout(again);
        again = setTimeout(follow, AGAIN);
      });
    };
    follow();
    return () => {
      source.close();
      clearTimeout(again);
      clearTimeout(drawing);
    };
  }, []);
  return { ...log, connection };
}
