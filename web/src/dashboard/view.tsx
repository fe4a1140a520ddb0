import { Fragment } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { type Overview, readOverview, type Stream } from '../shared/api';
import { askTime, ServerClock } from '../shared/clock';
import * as format from '../shared/format';
import { Messages, usePolled } from '../shared/polled';
import { playerUrls, watchUrl } from '../shared/streams';
import { changes, describeTrack, inOrder, publishing, summary, viewersOf } from './model';

const clock = new ServerClock();

/** The dashboard: which streams are live, who publishes them, and how many watch. */
export function Dashboard() {
  const reading = usePolled(readOverview, changed);
  useEffect(() => void askTime(clock, 3), []);
  const streams = reading.value?.streams ?? null;
  const node = reading.value?.node ?? null;
  const empty = streams !== null && streams.length === 0;
  return (
    <>
      <header class="bar">
        <a class="home" href="/" aria-current="page">
          headwater
        </a>
        <h1>Streams</h1>
        {node !== null && <a href="/nodes">Nodes</a>}
        {streams && (
          <span class="summary" data-testid="summary">
            {summary(streams)}
          </span>
        )}
      </header>
      <main class="dashboard">
        <Messages {...reading} />
        {empty && (
          <section class="card empty" aria-labelledby="empty">
            <h2 id="empty">Nothing is live yet</h2>
            <p>Publish a stream to this server and it appears here by itself.</p>
            <Publishing />
          </section>
        )}
        {streams && !empty && (
          <>
            <ul class="streams" aria-label="Streams">
              {inOrder(streams).map((stream) => (
                <li key={stream.name}>
                  <StreamCard stream={stream} />
                </li>
              ))}
            </ul>
            <details class="card how">
              <summary>How to publish</summary>
              <Publishing />
            </details>
          </>
        )}
      </main>
    </>
  );
}

const changed = (before: Overview, after: Overview) => changes(before.streams, after.streams);

function StreamCard({ stream }: { stream: Stream }) {
  const words = { live: 'Live', offline: 'Publisher lost', ended: 'Ended' };
  const uptime = stream.since === null ? null : (clock.at(Date.now()) - stream.since.getTime()) / 1000;
  const id = `stream-${stream.name.replaceAll('/', '-')}`;
  const viewers = viewersOf(stream);
  return (
    <article class="card stream" aria-labelledby={id} data-stream={stream.name}>
      <header>
        <h2 id={id}>
          <a href={watchUrl(stream.name)}>
            <span class="sr-only">Watch </span>
            {stream.name}
          </a>
        </h2>
        <span class={`badge badge-${stream.state}`}>{words[stream.state]}</span>
        {stream.state !== 'ended' && (
          <span class="uptime">
            on air for{' '}
            <time dateTime={format.isoDuration(uptime)} data-testid="uptime">
              {format.duration(uptime)}
            </time>
          </span>
        )}
      </header>
      <div class="columns">
        <Tracks stream={stream} />
        <section>
          <h3>Publisher{stream.publishers.length > 1 ? 's' : ''}</h3>
          {stream.publishers.length === 0 && <p class="faint">none</p>}
          <ul>
            {[...stream.publishers, ...stream.waiting].map(({ peer, protocol, rendition, backup }, at) => (
              <li key={`${peer} ${rendition} ${backup}`}>
                {format.delivery(protocol)}
                {peer !== null && (
                  <>
                    {' '}
                    from <code>{peer}</code>
                  </>
                )}
                {rendition !== null && `, rendition ${rendition}`}
                {backup && ', backup'}
                {at >= stream.publishers.length && ', waits'}
              </li>
            ))}
          </ul>
        </section>
        <section>
          <h3>{format.counted(viewers, 'viewer')}</h3>
          <dl class="viewers">
            {stream.viewers.map(({ delivery, count }) => (
              <div key={delivery} class={count === 0 ? 'none' : ''}>
                <dt>{format.delivery(delivery)}</dt>
                <dd>{format.whole(count)}</dd>
              </div>
            ))}
          </dl>
        </section>
      </div>
      <details>
        <summary>
          Addresses<span class="sr-only"> of {stream.name}</span>
        </summary>
        <dl class="addresses">
          {playerUrls(stream.name, new URL(location.href)).map(({ label, url }) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd>
                <code>{url}</code>
              </dd>
            </div>
          ))}
        </dl>
      </details>
    </article>
  );
}

function Tracks({ stream }: { stream: Stream }) {
  if (stream.tracks.length === 0) return <p class="faint">No tracks yet</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls sideways must be reachable by keyboard
    <section class="tracks" tabIndex={0} aria-label={`Tracks of ${stream.name}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Track</th>
            <th scope="col">Codec</th>
            <th scope="col">Format</th>
            <th scope="col">Bitrate</th>
          </tr>
        </thead>
        <tbody>
          {stream.tracks.map((track) => {
            const { codec, shape, bitrate } = describeTrack(track);
            return (
              <tr key={track.name}>
                <th scope="row">{track.name}</th>
                <td>
                  {codec} {codec !== track.codec && <span class="rfc">{track.codec}</span>}
                </td>
                <td>{shape}</td>
                <td>{bitrate}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

function Publishing() {
  const how = publishing(location.hostname);
  return (
    <div class="publishing">
      <h3>This browser</h3>
      <p>
        <a href="/publish/live/camera">/publish/live/camera</a> sends a camera or a screen by WebRTC. Another
        name in the address publishes another stream.
      </p>
      <h3>ffmpeg</h3>
      <Command text={how.ffmpeg} of="ffmpeg" />
      <h3>OBS Studio</h3>
      <p>
        Settings → Stream → Service “Custom…”, server <code>{how.server}</code>, stream key{' '}
        <code>{how.key}</code>; a keyframe interval of 1 or 2 s keeps the delay short.
      </p>
      <h3>headwater itself</h3>
      <Command text={how.headwater} of="headwater" />
      <p class="faint">
        NAME is yours to choose: letters, digits, dot, hyphen and underscore. The RTMP port is 1935 unless the
        server was started with another one, which then goes behind the host:{' '}
        <code>rtmp://{location.hostname}:PORT/live/NAME</code>.
      </p>
    </div>
  );
}

function Command({ text, of }: { text: string; of: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 2_000);
    return () => clearTimeout(timer);
  }, [copied]);
  // Browsers offer the clipboard only to pages from https and localhost.
  const copy =
    navigator.clipboard &&
    (() =>
      navigator.clipboard.writeText(text).then(
        () => setCopied(true),
        () => undefined,
      ));
  return (
    <div class="command">
      <code>
        {/* A line breaks between two words of the command, not at the hyphen of an option. */}
        {text.split(' ').map((word, place) => (
          <Fragment key={place}>
            {place > 0 && ' '}
            <span>{word}</span>
          </Fragment>
        ))}
      </code>
      {copy && (
        <button type="button" onClick={copy}>
          {copied ? 'Copied' : 'Copy'}
          <span class="sr-only"> the {of} command</span>
        </button>
      )}
    </div>
  );
}
