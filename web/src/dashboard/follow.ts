import { useEffect, useState } from 'preact/hooks';
import { quietly } from '../shared/signing-in';

/** Lines are drawn so often at most, in milliseconds, however many events there are. */
const DRAWN = 250;
/** After so many milliseconds the page tries again where the browser gives up. */
const AGAIN = 5_000;

export type Connection = 'connecting' | 'open' | 'cut' | 'refused';

export const CONNECTION: Record<Connection, string> = {
  connecting: 'connecting…',
  open: 'following',
  cut: 'cut off, trying again…',
  refused: 'only administrators may read this',
};

export interface Followed<Line> {
  /** As `add` of the source keeps them. */
  lines: readonly Line[];
  /** How many the server does not have any more. */
  lost: number;
  connection: Connection;
}

/** What sends lines. It must be the same object each time. */
export interface Source<Line> {
  path: string;
  /** Names of the events that carry lines. */
  names: readonly string[];
  /** Reads a line. Null if it is none that this page knows. */
  parse: (data: string) => Omit<Line, 'key'> | null;
  /** Adds lines, which came one after the other. */
  add: (lines: readonly Line[], news: readonly Line[]) => Line[];
}

/** Follows a source, from the oldest line that the server has. Connects again by itself. */
export function useFollowed<Line extends { key: number }>(source: Source<Line>): Followed<Line> {
  const [log, setLog] = useState<{ lines: readonly Line[]; lost: number }>({ lines: [], lost: 0 });
  const [connection, setConnection] = useState<Connection>('connecting');
  useEffect(() => {
    const took = (news: Line[], more: number, anew: boolean) =>
      setLog((log) => {
        const { lines, lost } = anew ? { lines: [], lost: 0 } : log;
        return { lines: source.add(lines, news), lost: lost + more };
      });
    return follow(source, took, setConnection);
  }, [source]);
  return { ...log, connection };
}

/**
 * Follows a source while the page is visible. Over HTTP/1.1, browsers open six connections to a server for
 * all their tabs together. Tabs that nobody sees must not keep those that the others need. `took` gets new
 * lines, how many were lost before them, and whether they take the place of all lines before. Returns a
 * function that ends this.
 */
export function follow<Line extends { key: number }>(
  source: Source<Line>,
  took: (news: Line[], lost: number, anew: boolean) => void,
  changed: (connection: Connection) => void,
): () => void {
  let events: EventSource | null = null;
  let again: ReturnType<typeof setTimeout> | undefined;
  let drawing: ReturnType<typeof setTimeout> | undefined;
  let news: Line[] = [];
  let [key, last, missed] = [0, '0', 0];
  let [isAnew, isOver] = [false, false];
  const draw = () => {
    drawing ??= setTimeout(() => {
      drawing = undefined;
      const [lines, more, anew] = [news, missed, isAnew];
      [news, missed, isAnew] = [[], 0, false];
      took(lines, more, anew);
    }, DRAWN);
  };
  const take = ({ data, lastEventId }: MessageEvent<string>) => {
    if (lastEventId !== '') last = lastEventId;
    const line = source.parse(data);
    if (!line) return;
    news.push({ ...line, key: key++ } as Line);
    draw();
  };
  const skip = ({ data }: MessageEvent<string>) => {
    missed += Number(/\d+/.exec(data)?.[0] ?? 0);
    draw();
  };
  /** An EventSource does not tell why it was refused. */
  const isRefused = async () => {
    const answer = await fetch(source.path, { method: 'HEAD', credentials: quietly() }).catch(() => null);
    return answer?.status === 401 || answer?.status === 403;
  };
  const connect = () => {
    const mine = new EventSource(`${source.path}?after=${last}`);
    events = mine;
    for (const name of source.names) mine.addEventListener(name, take);
    mine.addEventListener('lost', skip);
    mine.addEventListener('open', () => {
      changed('open');
      if (isAnew) draw();
    });
    mine.addEventListener('error', async () => {
      changed('cut');
      // The browser tries again after a broken connection, but not after a refusal.
      if (mine.readyState !== EventSource.CLOSED) return;
      const refused = await isRefused();
      if (events !== mine) return;
      if (refused) {
        isOver = true;
        return changed('refused');
      }
      clearTimeout(again);
      again = setTimeout(connect, AGAIN);
    });
  };
  const leave = () => {
    events?.close();
    events = null;
    clearTimeout(again);
  };
  const look = () => {
    leave();
    if (document.visibilityState !== 'visible' || isOver) return;
    // The server may have begun anew meanwhile, and its numbers, too.
    [news, missed] = [[], 0];
    [last, isAnew] = ['0', true];
    connect();
  };
  document.addEventListener('visibilitychange', look);
  look();
  return () => {
    document.removeEventListener('visibilitychange', look);
    leave();
    clearTimeout(drawing);
  };
}
