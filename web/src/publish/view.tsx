import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import * as format from '../shared/format';
import { watchUrl } from '../shared/streams';
import { BITRATES, HEIGHTS, type Settings } from './model';
import type { Publication, State } from './publication';

const LABELS: Record<State, string> = {
  preview: 'Not published',
  connecting: 'Connecting',
  live: 'Live',
  again: 'Connecting again',
};

/** The page for an address that names no live stream. */
export function NoStream() {
  return (
    <>
      <Header title="No stream" />
      <main class="publish">
        <p>
          This address names no live stream. A stream is <code>/publish/live/NAME</code>, of letters, digits,
          dot, hyphen and underscore.
        </p>
      </main>
    </>
  );
}

/** The page that publishes a camera, or a screen, and a microphone. */
export function Publish({ stream, publication }: { stream: string; publication: Publication }) {
  const [, setTurn] = useState(0);
  const preview = useRef<HTMLVideoElement>(null);
  const { state, trouble, settings, media } = publication;

  useEffect(() => publication.subscribe(() => setTurn((turn) => turn + 1)), [publication]);
  useEffect(() => {
    document.title = `Publish ${stream} – headwater`;
    if (preview.current) preview.current.srcObject = media;
  }, [stream, media]);

  const empty = media.getTracks().length === 0;
  return (
    <>
      <Header title={stream}>
        <span
          class={`badge badge-${state === 'live' ? 'live' : state === 'again' ? 'offline' : ''}`}
          data-testid="state"
        >
          {LABELS[state]}
        </span>
      </Header>
      <main class="publish">
        <section class="preview" aria-label="Preview">
          <video ref={preview} autoplay muted playsInline aria-label="What the camera sees" />
          <div role="alert">{trouble && <p class="trouble">{trouble}</p>}</div>
          {state === 'preview' ? (
            <button type="button" class="primary" disabled={empty} onClick={() => publication.start()}>
              Start publishing
            </button>
          ) : (
            <button type="button" class="primary" onClick={() => publication.stop()}>
              Stop publishing
            </button>
          )}
        </section>
        <div class="side">
          <Sources publication={publication} settings={settings} />
          <SentFigures publication={publication} />
          <section class="card">
            <h2>Watch</h2>
            <p>
              <a href={watchUrl(stream, 'webrtc')}>By WebRTC</a>, a fraction of a second behind, or{' '}
              <a href={watchUrl(stream)}>by LL-HLS</a>, for any number of viewers.
            </p>
          </section>
        </div>
        <p class="sr-only" role="status" aria-live="polite">
          {LABELS[state]}
        </p>
      </main>
    </>
  );
}

function Header({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <header class="bar">
      <span class="home">headwater</span>
      <h1>{title}</h1>
      {children}
    </header>
  );
}

/** The choice of devices, size and bit rate. */
function Sources({ publication, settings }: { publication: Publication; settings: Settings }) {
  const { devices } = publication;
  const choose = (change: Partial<Settings>) => void publication.choose({ ...settings, ...change });
  const cameras = devices.filter(({ kind }) => kind === 'videoinput');
  const microphones = devices.filter(({ kind }) => kind === 'audioinput');
  const canShareScreen = navigator.mediaDevices !== undefined && 'getDisplayMedia' in navigator.mediaDevices;
  const { video, audio } = settings;
  return (
    <form class="card sources" onSubmit={(event) => event.preventDefault()}>
      <h2>Sources</h2>
      <Choice
        label="Video"
        value={video.kind === 'camera' ? `camera ${video.id ?? ''}` : video.kind}
        options={[
          ...named(cameras, 'camera', 'Camera'),
          ...(canShareScreen ? [{ value: 'screen', label: 'Screen or window' }] : []),
          { value: 'none', label: 'None' },
        ]}
        choose={(value) => {
          if (value === 'screen' || value === 'none') choose({ video: { kind: value } });
          else choose({ video: { kind: 'camera', id: value.slice('camera '.length) || null } });
        }}
      />
      <Choice
        label="Audio"
        value={audio.kind === 'microphone' ? `microphone ${audio.id ?? ''}` : audio.kind}
        options={[...named(microphones, 'microphone', 'Microphone'), { value: 'none', label: 'None' }]}
        choose={(value) =>
          choose({
            audio:
              value === 'none'
                ? { kind: 'none' }
                : { kind: 'microphone', id: value.slice('microphone '.length) || null },
          })
        }
      />
      <Choice
        label="Size"
        value={String(settings.height)}
        options={HEIGHTS.map((height) => ({ value: String(height), label: `${height}p` }))}
        choose={(value) => choose({ height: Number(value) })}
      />
      <Choice
        label="Bitrate at most"
        value={String(settings.bitrate)}
        options={BITRATES.map((bitrate) => ({ value: String(bitrate), label: format.bitrate(bitrate) }))}
        choose={(value) => choose({ bitrate: Number(value) })}
      />
      <label class="check">
        <input
          type="checkbox"
          checked={settings.simulcast}
          disabled={publication.state !== 'preview'}
          aria-describedby="simulcast-hint"
          onChange={(event) => choose({ simulcast: event.currentTarget.checked })}
        />
        <span>Also send smaller pictures (simulcast)</span>
      </label>
      <p class="hint" id="simulcast-hint">
        Viewers with less bandwidth get a smaller picture. This takes up to half as much bandwidth again. It
        can be changed while nothing is published.
      </p>
    </form>
  );
}

/** The options for devices of a kind. Before the browser gives a page a device, devices have no ids. */
function named(devices: readonly MediaDeviceInfo[], prefix: string, label: string) {
  const known = devices.filter(({ deviceId }) => deviceId !== '');
  return [
    { value: `${prefix} `, label: `Usual ${label.toLowerCase()}` },
    ...known.map((device, index) => ({
      value: `${prefix} ${device.deviceId}`,
      label: device.label || `${label} ${index + 1}`,
    })),
  ];
}

function Choice(props: {
  label: string;
  value: string;
  options: { value: string; label: string }[];
  choose: (value: string) => void;
}) {
  return (
    <label>
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.choose(event.currentTarget.value)}>
        {props.options.map(({ value, label }) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** What is being sent. */
function SentFigures({ publication }: { publication: Publication }) {
  const { sent } = publication;
  const { loss, roundTrip } = sent;
  const figures = [
    { id: 'bitrate', name: 'Bitrate', value: format.bitrate(sent.bitrate) },
    {
      id: 'video',
      name: 'Video',
      value: format.resolution(sent.width, sent.height),
      note: sent.frameRate === null ? undefined : format.frameRate(sent.frameRate),
    },
    { id: 'loss', name: 'Lost', value: loss === null ? format.UNKNOWN : `${(loss * 100).toFixed(1)} %` },
    {
      id: 'round-trip',
      name: 'Round trip',
      value: roundTrip === null ? format.UNKNOWN : `${Math.round(roundTrip * 1000)} ms`,
    },
  ];
  const reasons = { bandwidth: 'The network carries no more.', processor: 'The processor encodes no more.' };
  return (
    <section aria-label="What is sent">
      <dl class="figures">
        {figures.map(({ id, name, value, note }) => (
          <div key={id}>
            <dt>{name}</dt>
            <dd data-testid={id}>
              {value}
              <span class="note">{note}</span>
            </dd>
          </div>
        ))}
      </dl>
      {sent.layers.length > 0 && (
        <table class="card layers" data-testid="layers">
          <caption>Layers that are sent</caption>
          <thead>
            <tr>
              <th scope="col">Size</th>
              <th scope="col">Frames</th>
              <th scope="col">Bitrate</th>
            </tr>
          </thead>
          <tbody>
            {sent.layers.map(({ rid, width, height, frameRate, bitrate }) => (
              <tr key={rid}>
                <th scope="row">{format.resolution(width, height)}</th>
                <td>
                  {frameRate === null || frameRate === 0 ? 'not sent now' : format.frameRate(frameRate)}
                </td>
                <td>{format.bitrate(bitrate)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {sent.limitedBy !== null && <p class="hint">{reasons[sent.limitedBy]}</p>}
    </section>
  );
}
