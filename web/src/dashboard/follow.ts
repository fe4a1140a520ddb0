import { useEffect, useState } from 'preact/hooks';

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
    let events: EventSource;
    let again: ReturnType<typeof setTimeout> | undefined;
    let drawing: ReturnType<typeof setTimeout> | undefined;
    let news: Line[] = [];
    let [key, last, missed, isOver] = [0, '0', 0, false];
    const draw = () => {
      drawing ??= setTimeout(() => {
        drawing = undefined;
        const [lines, more] = [news, missed];
        [news, missed] = [[], 0];
        setLog((log) => ({ lines: source.add(log.lines, lines), lost: log.lost + more }));
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
      const answer = await fetch(source.path, { method: 'HEAD' }).catch(() => null);
      return answer?.status === 403;
    };
    const follow = () => {
      events = new EventSource(`${source.path}?after=${last}`);
      for (const name of source.names) events.addEventListener(name, take);
      events.addEventListener('lost', skip);
      events.addEventListener('open', () => setConnection('open'));
      events.addEventListener('error', async () => {
        setConnection('cut');
        // The browser tries again after a broken connection, but not after a refusal.
        if (events.readyState !== EventSource.CLOSED) return;
        const refused = await isRefused();
        if (isOver) return;
        if (refused) return setConnection('refused');
        clearTimeout(again);
        again = setTimeout(follow, AGAIN);
      });
    };
    follow();
    return () => {
      isOver = true;
      events.close();
      clearTimeout(again);
      clearTimeout(drawing);
    };
  }, [source]);
  return { ...log, connection };
}
