import { useEffect, useState } from 'preact/hooks';
import * as format from '../shared/format';
import type { Choice } from './engines/engine';
import type { Session, Stats } from './session';

/** “Go to live” is highlighted for a viewer who is this far behind the target, in seconds. */
const BEHIND = 2;

/** The outline of a crossed-out loudspeaker, on a field of 24 × 24. */
export const MUTED =
  'M3 9v6h4l5 5V4L7 9zm13.6 3 3.4-3.4-1.4-1.4-3.4 3.4-3.4-3.4-1.4 1.4 3.4 3.4-3.4 3.4 1.4 1.4 3.4-3.4 3.4 3.4 1.4-1.4z';

interface Props {
  session: Session;
  stats: Stats;
  fullScreen: () => void;
}

/** The buttons below the video. Each name says what the button does at the moment. */
export function Controls({ session, stats, fullScreen }: Props) {
  const full = useFullScreen();
  const silent = stats.muted || stats.volume === 0;
  const behind =
    stats.latency !== null &&
    (stats.paused || stats.latency > (stats.targetLatency ?? stats.latency) + BEHIND);
  const choices = session.choices();
  return (
    <fieldset class="controls" aria-label="Player controls">
      {session.recorded && stats.duration !== null && (
        <Position session={session} stats={stats} duration={stats.duration} />
      )}
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
      <span class="space" />
      {choices.audio.length > 1 && (
        <Choose
          name="Audio"
          choices={choices.audio}
          chosen={choices.chosenAudio}
          choose={(id) => id !== null && session.chooseAudio(id)}
        />
      )}
      {choices.renditions.length > 1 && (
        <Choose
          name="Quality"
          none="By the server"
          choices={choices.renditions}
          chosen={choices.chosenRendition}
          choose={(id) => session.chooseRendition(id)}
        />
      )}
      {choices.subtitles.length > 0 && (
        <Choose
          name="Subtitles"
          none="Off"
          choices={choices.subtitles}
          chosen={choices.chosenSubtitles}
          choose={(id) => session.chooseSubtitles(id)}
        />
      )}
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

/** Seconds by which a key moves the position: arrows, and Page Up and Page Down. */
const SMALL_STEP = 5;
const LARGE_STEP = 60;

const STEPS: Record<string, number> = {
  ArrowLeft: -SMALL_STEP,
  ArrowDown: -SMALL_STEP,
  ArrowRight: SMALL_STEP,
  ArrowUp: SMALL_STEP,
  PageDown: -LARGE_STEP,
  PageUp: LARGE_STEP,
};

/** Shows the position in a file and lets the viewer change it. */
function Position({ session, stats, duration }: { session: Session; stats: Stats; duration: number }) {
  // While the viewer drags the knob, it stays at the pointer. The video follows when the knob is
  // released.
  const [held, setHeld] = useState<number | null>(null);
  const shown = held ?? Math.min(stats.currentTime, duration);
  const share = (time: number) => `${(100 * Math.min(time, duration)) / duration}%`;
  return (
    <div class="timeline">
      <input
        class="position"
        type="range"
        aria-label="Position"
        aria-valuetext={`${format.duration(shown)} of ${format.duration(duration)}`}
        style={{ '--played': share(shown), '--loaded': share(stats.currentTime + stats.buffer) }}
        min="0"
        max={duration}
        step="any"
        value={shown}
        onKeyDown={(event) => {
          const step = STEPS[event.key];
          if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          session.step(step);
        }}
        onInput={(event) => setHeld(event.currentTarget.valueAsNumber)}
        onChange={(event) => {
          session.seek(event.currentTarget.valueAsNumber);
          setHeld(null);
        }}
      />
      <span class="times" data-testid="times">
        {format.duration(shown)} / {format.duration(duration)}
      </span>
    </div>
  );
}

/** A choice of track. It is a native list, so keys, name and role are the browser's own. */
function Choose(props: {
  name: string;
  none?: string;
  choices: readonly Choice[];
  chosen: number | null;
  choose: (id: number | null) => void;
}) {
  const { name, none, choices, chosen, choose } = props;
  return (
    <label class="choose">
      <span>{name}</span>
      <select
        value={chosen ?? ''}
        onChange={({ currentTarget }) =>
          choose(currentTarget.value === '' ? null : Number(currentTarget.value))
        }
      >
        {none !== undefined && <option value="">{none}</option>}
        {choices.map(({ id, label }) => (
          <option key={id} value={id}>
            {label}
          </option>
        ))}
      </select>
    </label>
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

/**
 * Switches full screen for the video with its controls, or for the video alone if nothing else
 * is possible (iPhone).
 */
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
