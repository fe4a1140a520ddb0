import { useEffect, useState } from 'preact/hooks';
import * as format from '../shared/format';
import type { Session, Stats } from './session';

/** How far behind its target a viewer is when “Go to live” is more than a formality, in seconds. */
const BEHIND = 2;

/** A loudspeaker crossed out, on a field of 24 × 24. */
export const MUTED =
  'M3 9v6h4l5 5V4L7 9zm13.6 3 3.4-3.4-1.4-1.4-3.4 3.4-3.4-3.4-1.4 1.4 3.4 3.4-3.4 3.4 1.4 1.4 3.4-3.4 3.4 3.4 1.4-1.4z';

interface Props {
  session: Session;
  stats: Stats;
  fullScreen: () => void;
}

/** The buttons below the picture. Every name says what pressing does now. */
export function Controls({ session, stats, fullScreen }: Props) {
  const full = useFullScreen();
  const silent = stats.muted || stats.volume === 0;
  const behind =
    stats.latency !== null &&
    (stats.paused || stats.latency > (stats.targetLatency ?? stats.latency) + BEHIND);
  const { video } = session;
  return (
    <fieldset class="controls" aria-label="Player controls">
      <Button name={stats.paused ? 'Play' : 'Pause'} keys="Space" press={() => session.togglePlay()}>
        <path d={stats.paused ? 'M7 4v16l13-8z' : 'M6 4h4v16H6zM14 4h4v16h-4z'} />
      </Button>
      <Button name={silent ? 'Unmute' : 'Mute'} keys="m" press={() => session.toggleMute()}>
        <path
          d={
            silent
              ? MUTED
              : 'M3 9v6h4l5 5V4L7 9zm11-1v8a4.5 4.5 0 0 0 0-8zm0-5v2.1a7 7 0 0 1 0 13.8V21a9 9 0 0 0 0-18z'
          }
        />
      </Button>
      <input
        class="volume"
        type="range"
        aria-label="Volume"
        aria-valuetext={stats.muted ? 'muted' : `${Math.round(stats.volume * 100)} percent`}
        min="0"
        max="1"
        step="0.05"
        value={stats.muted ? 0 : stats.volume}
        onInput={(event) => session.setVolume(event.currentTarget.valueAsNumber)}
      />
      {session.recorded && stats.duration !== null && (
        <>
          <input
            class="position"
            type="range"
            aria-label="Position"
            aria-valuetext={`${format.duration(stats.currentTime)} of ${format.duration(stats.duration)}`}
            min="0"
            max={stats.duration}
            step="any"
            value={stats.currentTime}
            onInput={(event) => session.seek(event.currentTarget.valueAsNumber)}
          />
          <span class="times">
            {format.duration(video.currentTime)} / {format.duration(stats.duration)}
          </span>
        </>
      )}
      <span class="space" />
      {!session.recorded && (
        <button
          type="button"
          class={`live${behind ? ' behind' : ''}`}
          aria-keyshortcuts="l"
          title="Go to live (l)"
          onClick={() => session.goLive()}
        >
          <span class="dot" aria-hidden="true" /> Go to live
        </button>
      )}
      <Button name={full ? 'Leave full screen' : 'Full screen'} keys="f" press={fullScreen}>
        <path
          d={
            full
              ? 'M8 3v5H3v2h7V3zm6 0v7h7V8h-5V3zM3 14v2h5v5h2v-7zm11 0v7h2v-5h5v-2z'
              : 'M3 3v7h2V5h5V3zm11 0v2h5v5h2V3zM3 14v7h7v-2H5v-5zm16 0v5h-5v2h7v-7z'
          }
        />
      </Button>
    </fieldset>
  );
}

function Button(props: {
  name: string;
  keys: string;
  press: () => void;
  children: preact.ComponentChildren;
}) {
  return (
    <button
      type="button"
      class="icon"
      aria-label={props.name}
      aria-keyshortcuts={props.keys}
      title={`${props.name} (${props.keys.toLowerCase()})`}
      onClick={props.press}
    >
      <svg viewBox="0 0 24 24" aria-hidden="true" focusable="false">
        {props.children}
      </svg>
    </button>
  );
}

function useFullScreen(): boolean {
  const [full, setFull] = useState(false);
  useEffect(() => {
    const changed = () => setFull(document.fullscreenElement !== null);
    document.addEventListener('fullscreenchange', changed);
    return () => document.removeEventListener('fullscreenchange', changed);
  }, []);
  return full;
}

/** Full screen of the picture with its controls; of the picture alone where only that is possible (iPhone). */
export function toggleFullScreen(stage: HTMLElement | null, video: HTMLVideoElement): void {
  const refused = () => undefined;
  if (document.fullscreenElement) {
    document.exitFullscreen().catch(refused);
  } else if (stage?.requestFullscreen) {
    stage.requestFullscreen().catch(refused);
  } else {
    (video as HTMLVideoElement & { webkitEnterFullscreen?(): void }).webkitEnterFullscreen?.();
  }
}
