import { useEffect, useRef, useState } from 'preact/hooks';
import { playerUrls, watchUrl } from '../shared/streams';
import { Controls, MUTED, toggleFullScreen } from './controls';
import { Delivery } from './delivery';
import { Figures } from './figures';
import { commandOf, KEYS, keysUsedBy } from './keys';
import type { Session } from './session';

/**
 * How often the figures are updated, in milliseconds: often enough to follow, rarely enough to
 * read.
 */
const FIGURES_EVERY = 500;
/** How long the controls stay visible in full screen after the last movement, in milliseconds. */
const CONTROLS_STAY = 3_000;

/** The watch page. */
export function Watch({ session }: { session: Session }) {
  useRedraw(session);
  const [shortcuts, setShortcuts] = useShortcuts(session);
  const stage = useRef<HTMLDivElement>(null);
  const video = useRef<HTMLDivElement>(null);
  const awake = useAwake(stage);

  useEffect(() => {
    video.current?.prepend(session.video);
    session.video.tabIndex = -1;
  }, [session]);

  const { condition, request } = session;
  const { message } = condition;
  const stats = session.stats();
  const title = request.stream ?? 'No stream';

  useEffect(() => {
    document.title = `${title} – headwater`;
    session.video.setAttribute('aria-label', `Video of ${title}`);
  }, [title, session]);

  return (
    <>
      <header class="bar">
        <span class="home">headwater</span>
        <h1>{title}</h1>
        <span class={`badge badge-${condition.kind}`} data-testid="state">
          {condition.label}
        </span>
      </header>
      <main class="watch">
        <div class={`stage${awake ? '' : ' idle'}`} ref={stage} data-shortcuts={shortcuts ? 'on' : 'off'}>
          <div class="video" ref={video}>
            {message && condition.kind !== 'starting' && condition.kind !== 'buffering' && (
              <div class="message">
                <h2>{message.title}</h2>
                {message.text && <p>{message.text}</p>}
                {message.detail && <p class="detail">{message.detail}</p>}
                {message.retry && (
                  <button type="button" class="primary" onClick={() => session.retry()}>
                    Try again
                  </button>
                )}
              </div>
            )}
            {message && (condition.kind === 'starting' || condition.kind === 'buffering') && (
              <div class="passing">{message.title}</div>
            )}
            {!message && stats.width === null && <div class="passing">Audio without video</div>}
            {!message && stats.muted && !stats.paused && (
              <button type="button" class="unmute" onClick={() => session.toggleMute()}>
                <svg viewBox="0 0 24 24" aria-hidden="true" focusable="false">
                  <path d={MUTED} />
                </svg>
                Unmute
              </button>
            )}
          </div>
          <Controls
            session={session}
            stats={stats}
            fullScreen={() => toggleFullScreen(stage.current, session.video)}
          />
        </div>
        {/* Only changes of state are spoken; the figures below change all the time. */}
        <p class="sr-only" role="status" aria-live="polite">
          {message ? `${message.title}. ${message.text}` : condition.label}
        </p>
        <div class="side">
          <Delivery session={session} />
          <Figures stats={stats} recorded={session.recorded} label={condition.label} />
          <details class="keys">
            <summary>Keyboard shortcuts</summary>
            <dl>
              {KEYS.filter(({ only }) => only !== (session.recorded ? 'live' : 'recorded')).map(
                ({ shown, what }) => (
                  <div key={shown}>
                    <dt>
                      <kbd>{shown}</kbd>
                    </dt>
                    <dd>{what}</dd>
                  </div>
                ),
              )}
            </dl>
            <label>
              <input
                type="checkbox"
                checked={shortcuts}
                onChange={(event) => setShortcuts(event.currentTarget.checked)}
              />{' '}
              Shortcuts on
            </label>
          </details>
          {request.stream && (
            <details class="elsewhere">
              <summary>Addresses for other players</summary>
              <dl>
                {playerUrls(request.stream, new URL(location.href)).map(({ label, url }) => (
                  <div key={label}>
                    <dt>{label}</dt>
                    <dd>
                      <code>{url}</code>
                    </dd>
                  </div>
                ))}
                <div>
                  <dt>This page</dt>
                  <dd>
                    <code>
                      {
                        new URL(
                          watchUrl(
                            request.stream,
                            session.via ?? undefined,
                            request.prefix,
                            request.credentials.query,
                          ),
                          location.href,
                        ).href
                      }
                    </code>
                  </dd>
                </div>
              </dl>
            </details>
          )}
        </div>
      </main>
    </>
  );
}

/**
 * Redraws when the session has changed, and regularly for the figures while the page is visible.
 */
function useRedraw(session: Session): void {
  const [, setTurn] = useState(0);
  useEffect(() => {
    const redraw = () => setTurn((turn) => turn + 1);
    const unsubscribe = session.subscribe(redraw);
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') redraw();
    }, FIGURES_EVERY);
    return () => {
      unsubscribe();
      clearInterval(timer);
    };
  }, [session]);
}

const SHORTCUTS_KEY = 'headwater.shortcuts';

/**
 * The single-key shortcuts. The viewer can turn them off, because dictation or unsteady hands may
 * press keys by mistake (WCAG 2.1.4).
 */
function useShortcuts(session: Session): [boolean, (on: boolean) => void] {
  const [on, setOn] = useState(() => stored(SHORTCUTS_KEY) !== 'off');
  // The handler reads this ref, so that a change takes effect at once and not at the next redraw.
  const current = useRef(on);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const command = current.current
        ? commandOf(event, session.recorded, keysUsedBy(document.activeElement))
        : null;
      if (command === null) return;
      event.preventDefault();
      if (command === 'play') session.togglePlay();
      else if (command === 'mute') session.toggleMute();
      else if (command === 'live') session.goLive();
      else if (command === 'back') session.step(-5);
      else if (command === 'ahead') session.step(5);
      else toggleFullScreen(document.querySelector<HTMLElement>('.stage'), session.video);
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }, [session]);
  return [
    on,
    (value) => {
      current.current = value;
      setOn(value);
      try {
        localStorage.setItem(SHORTCUTS_KEY, value ? 'on' : 'off');
      } catch {
        // Storage may be forbidden. The choice then lasts for this visit.
      }
    },
  ];
}

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/**
 * Whether to show the controls in full screen: for a while after each movement, key or change of
 * focus.
 */
function useAwake(stage: { current: HTMLElement | null }): boolean {
  const [awake, setAwake] = useState(true);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const wake = () => {
      setAwake(true);
      clearTimeout(timer);
      timer = setTimeout(() => setAwake(false), CONTROLS_STAY);
    };
    const events = ['pointermove', 'pointerdown', 'keydown', 'focusin'] as const;
    const element = stage.current;
    for (const event of events) element?.addEventListener(event, wake);
    document.addEventListener('fullscreenchange', wake);
    return () => {
      clearTimeout(timer);
      for (const event of events) element?.removeEventListener(event, wake);
      document.removeEventListener('fullscreenchange', wake);
    };
  }, [stage]);
  return awake;
}
