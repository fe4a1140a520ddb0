import { useEffect, useRef, useState } from 'preact/hooks';
import * as format from '../shared/format';
import { Messages, usePolled } from '../shared/polled';
import { watchUrl } from '../shared/streams';
import { describeTrack } from './model';
import { draw } from './poster';
import {
  escaped,
  type Folder,
  folderHref,
  nameOf,
  type Opened,
  readFolder,
  readTitle,
  type Title,
  Turns,
  trail,
} from './titles';

/** How often a folder is listed, in milliseconds. */
const LISTED = 5_000;
/**
 * Pause before a title is opened again that could not be opened in time, in milliseconds. Each pause is twice the one
 * before.
 */
const OPEN_AGAIN = 5_000;
/** How often a title is opened at most: no frame may ever come of it. */
const TRIES = 4;
/** How many titles are opened at once. */
const turns = new Turns(2);

/** The titles in a folder, with posters. */
export function Shelf({ folder }: { folder: string }) {
  // The names after which the further pages begin.
  const [pages, setPages] = useState<readonly string[]>([]);
  const asked = useRef(pages);
  asked.current = pages;
  const reading = usePolled(() => readPages(folder, asked.current), undefined, LISTED);
  const listed = reading.value;
  return (
    <section class="titles" aria-labelledby="folder">
      <h2 id="folder" class="sr-only">
        {nameOf(folder)}
      </h2>
      <nav class="over" aria-label="Folders above">
        <ol class="trail">
          {trail(folder).map(({ path, name }) => (
            <li key={path}>
              {path === folder ? (
                <strong aria-current="page">{name}</strong>
              ) : (
                <a href={folderHref(path)}>{name}</a>
              )}
            </li>
          ))}
        </ol>
        {listed?.isTitle && (
          <a class="watch" href={watchUrl(folder)}>
            Watch as one title
          </a>
        )}
      </nav>
      <Messages {...reading} />
      {listed && listed.titles.length === 0 && listed.next === null && (
        <p class="card faint">There are no titles here: MP4 files below vod.root.</p>
      )}
      <ul class="shelf" aria-label="Titles">
        {listed?.titles.map((title) => (
          <li key={title.path}>{title.kind === 'folder' ? <Box title={title} /> : <Film title={title} />}</li>
        ))}
      </ul>
      {listed?.next != null && (
        <p class="rest">
          <button
            type="button"
            class="quiet"
            onClick={() => setPages([...pages, listed.next ?? ''])}
            disabled={pages.includes(listed.next)}
          >
            Show more
          </button>
        </p>
      )}
    </section>
  );
}

/** The first titles of a folder, and those of the pages after these names. */
async function readPages(path: string, pages: readonly string[]): Promise<Folder> {
  const [first, ...others] = await Promise.all(['', ...pages].map((after) => readFolder(path, after)));
  if (!first) throw new Error('no page');
  const titles = [first, ...others].flatMap((page) => page.titles);
  return { ...first, titles, next: (others.at(-1) ?? first).next };
}

function Box({ title }: { title: Title }) {
  return (
    <article class="card title" data-title={title.path}>
      <div class="picture">
        <svg viewBox="0 0 24 24" aria-hidden="true">
          <path d="M3 6.5h6.5l2 2.5H21v10H3z" />
        </svg>
        <Watching title={title} />
      </div>
      <h3>
        <a href={folderHref(title.path)}>{nameOf(title.path)}</a>
      </h3>
      <p class="faint">Folder</p>
    </article>
  );
}

function Film({ title }: { title: Title }) {
  const article = useRef<HTMLElement>(null);
  const [opened, drawn] = useOpened(article, title);
  const known = opened ?? title.opened;
  const video = known?.tracks.find(({ kind }) => kind === 'video');
  const facts = [
    known?.duration == null ? null : format.duration(known.duration),
    video ? format.resolution(video.width, video.height) : null,
    video ? describeTrack(video).codec : null,
    format.bytes(title.size ?? 0),
  ];
  const name = nameOf(title.path);
  return (
    <article class="card title" ref={article} data-title={title.path} data-poster={drawn}>
      <div class="picture">
        <svg viewBox="0 0 24 24" aria-hidden="true">
          <path
            d={
              video || !known?.tracks.length
                ? 'M4 5h16v14H4zM10 9v6l5-3z'
                : 'M9 18V6l9-2v12M6 18h3v2H6zM15 16h3v2h-3z'
            }
          />
        </svg>
        <canvas />
        {/* It comes later, and so it must not move what is below. */}
        {known?.refusal && <p class="refusal">Cannot be played: {known.refusal}</p>}
        <Watching title={title} />
      </div>
      <h3>
        <a href={watchUrl(title.path)}>{name}</a>
      </h3>
      <p class="faint">{facts.flatMap((fact) => fact?.replaceAll(' ', '\u00a0') ?? []).join(', ')}</p>
    </article>
  );
}

function Watching({ title }: { title: Title }) {
  return title.viewers > 0 ? <p class="watching">{format.counted(title.viewers, 'viewer')}</p> : null;
}

/** The content of a title, and whether its poster is drawn, once the title has come into sight. */
function useOpened(
  article: { current: HTMLElement | null },
  { path, size, modified }: Title,
): [Opened | null, 'none' | 'drawn'] {
  const [opened, setOpened] = useState<Opened | null>(null);
  const [drawn, setDrawn] = useState<'none' | 'drawn'>('none');
  // A file that has changed is another title.
  const version = `${size} ${modified?.getTime()}`;
  useEffect(() => {
    const left = new AbortController();
    setDrawn('none');
    const open = async () => {
      const found = await readTitle(path, left.signal);
      left.signal.throwIfAborted();
      setOpened(found.opened);
      const canvas = article.current?.querySelector('canvas');
      if (!found.opened?.poster || !canvas) return;
      await draw(canvas, `/api/v1/posters/${escaped(path)}`, left.signal);
      left.signal.throwIfAborted();
      setDrawn('drawn');
    };
    let again: ReturnType<typeof setTimeout> | undefined;
    let tries = 0;
    let [isInSight, isDue] = [false, true];
    const attempt = () => {
      if (!isInSight || !isDue) return;
      isDue = false;
      turns.take(left.signal, open).catch((error: Error) => {
        // Where no answer came, or the browser was too busy to draw, a later try may succeed. Else the tile stays.
        const isLate = error.name === 'TimeoutError' || error instanceof TypeError;
        tries += 1;
        if (!isLate || tries === TRIES || left.signal.aborted) return;
        again = setTimeout(
          () => {
            isDue = true;
            attempt();
          },
          OPEN_AGAIN * 2 ** (tries - 1),
        );
      });
    };
    const observer = new IntersectionObserver((entries) => {
      isInSight = entries.at(-1)?.isIntersecting ?? false;
      attempt();
    });
    if (article.current) observer.observe(article.current);
    return () => {
      clearTimeout(again);
      observer.disconnect();
      left.abort();
    };
  }, [path, version]);
  return [opened, drawn];
}
