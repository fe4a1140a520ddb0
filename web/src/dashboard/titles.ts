import { ask, BadAnswer, list, number, parseTrack, record, type Track, text } from '../shared/api';
import { date } from './api';

/** A file that may be a title, or a folder. */
export interface Title {
  /** `vod/PATH` */
  path: string;
  kind: 'file' | 'folder';
  /** In bytes; null for a folder. */
  size: number | null;
  modified: Date | null;
  viewers: number;
  /** What is in it; null if that is not known yet. */
  opened: Opened | null;
}

export interface Opened {
  /** In seconds; null if it cannot be played. */
  duration: number | null;
  tracks: Track[];
  /** Whether the server has a poster. */
  poster: boolean;
  /** Why it cannot be played; null if it can. */
  refusal: string | null;
}

export interface Folder {
  /** `vod`, or `vod/PATH`. */
  path: string;
  /** Whether its files may be renditions of one title. */
  isTitle: boolean;
  titles: Title[];
  /** The name after which there is more; null if this is all. */
  next: string | null;
}

/** Lists a folder. The list begins after the name `after`. */
export async function readFolder(path: string, after = ''): Promise<Folder> {
  const query = `folder=${encodeURIComponent(path)}&after=${encodeURIComponent(after)}`;
  return parseFolder(await ask(`/api/v1/titles?${query}`));
}

/** Has the server open a title. */
export async function readTitle(path: string, signal: AbortSignal): Promise<Title> {
  return parseTitle(record(await ask(`/api/v1/titles/${escaped(path)}`, signal)));
}

/** A path as it is in a URL. */
export function escaped(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/');
}

/** Reads the answer of `GET /api/v1/titles`. */
export function parseFolder(answer: unknown): Folder {
  const { folder, is_title, titles, next } = record(answer);
  const path = text(folder);
  if (path === null || !Array.isArray(titles)) throw new BadAnswer('the list of titles is missing');
  return { path, isTitle: is_title === true, titles: list(titles).map(parseTitle), next: text(next) };
}

function parseTitle(title: Record<string, unknown>): Title {
  const path = text(title.path);
  if (path === null) throw new BadAnswer('a title without a path');
  return {
    path,
    kind: title.kind === 'folder' ? 'folder' : 'file',
    size: number(title.size),
    modified: date(title.modified),
    viewers: number(title.viewers) ?? 0,
    opened: title.opened == null ? null : parseOpened(record(title.opened)),
  };
}

function parseOpened(opened: Record<string, unknown>): Opened {
  return {
    duration: number(opened.duration_seconds),
    tracks: list(opened.tracks).map(parseTrack),
    poster: opened.poster === true,
    refusal: text(opened.refusal),
  };
}

/** The last part of a path. */
export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** The folder that a fragment of the page's address names, `#titles=vod/FOLDER`; null for other views. */
export function folderOf(fragment: string): string | null {
  const named = /^#titles=(vod(?:\/.+)?)$/.exec(fragment)?.[1];
  if (named === undefined) return null;
  try {
    return decodeURIComponent(named);
  } catch {
    return null;
  }
}

/** The address of a folder's view. */
export function folderHref(path: string): string {
  return `#titles=${escaped(path)}`;
}

/** A folder and those above it, the root first, each with its name. */
export function trail(path: string): { path: string; name: string }[] {
  const names = path.split('/');
  return names.map((name, i) => ({ path: names.slice(0, i + 1).join('/'), name: i === 0 ? 'Titles' : name }));
}

/** Runs at most so many at once, the others in turn. A task whose signal is aborted before its turn does not run. */
export class Turns {
  private running = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(private readonly most: number) {}

  async take<T>(signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    if (this.running >= this.most) await new Promise<void>((resolve) => this.waiting.push(resolve));
    else this.running += 1;
    try {
      signal.throwIfAborted();
      return await task();
    } finally {
      // Whoever is next takes this one's place.
      const next = this.waiting.shift();
      if (next) next();
      else this.running -= 1;
    }
  }
}
