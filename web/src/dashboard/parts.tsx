import type { Advice, Quality, Spread, Stream } from '../shared/api';
import { ServerClock } from '../shared/clock';
import * as format from '../shared/format';
import { playerUrls } from '../shared/streams';
import type { Tone } from './events';
import { byDelivery, describeTrack, verdict, viewersOf } from './model';

/** Parts of a stream that the list and the stream's own view have in common. */

export const serverClock = new ServerClock();

const SHAPES: Record<string, string> = {
  good: 'M3.5 8.5l3 3 6-7',
  calm: 'M4 8h8',
  note: 'M8 7.2v4.3M8 4.6v.1',
  warning: 'M8 6.2v3.6M8 12v.1',
  bad: 'M5 5l6 6M11 5l-6 6',
};

/** A mark for what stands beside it in words. Each has its own shape, not only its colour. */
export function Mark({ tone }: { tone: Tone | Advice['level'] }) {
  return (
    <svg class={`mark mark-${tone}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      {tone === 'warning' ? (
        <path class="ground" d="M8 1.2 15.4 14.6H.6Z" />
      ) : (
        <circle class="ground" cx="8" cy="8" r="7.5" />
      )}
      <path class="sign" d={SHAPES[tone]} />
    </svg>
  );
}

export function State({ stream }: { stream: Stream }) {
  const words = { live: 'Live', offline: 'Publisher lost', ended: 'Ended' };
  const uptime = stream.since === null ? null : (serverClock.at(Date.now()) - stream.since.getTime()) / 1000;
  const health = verdict(stream);
  return (
    <>
      <span class={`badge badge-${stream.state}`}>{words[stream.state]}</span>
      {health && (
        <span class={`verdict verdict-${health.level}`}>
          <Mark tone={health.level} />
          {health.text}
        </span>
      )}
      {stream.state !== 'ended' && (
        <span class="uptime">
          <span class="words">on air for </span>
          <time dateTime={format.isoDuration(uptime)} data-testid="uptime">
            {format.duration(uptime)}
          </time>
        </span>
      )}
    </>
  );
}

/** What an operator should know or do. */
function AdviceList({ stream }: { stream: Stream }) {
  if (stream.advice.length === 0) return null;
  return (
    <ul class="advice" aria-label={`Health of ${stream.name}`}>
      {stream.advice.map(({ level, text }) => (
        <li key={text} class={level}>
          <Mark tone={level} />
          <span>
            <strong>{level === 'warning' ? 'Warning' : 'Note'}:</strong> {text}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Publishers({ stream }: { stream: Stream }) {
  if (stream.publishers.length + stream.waiting.length === 0) return <p class="faint">none</p>;
  return (
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
  );
}

/** How many watch, as a bar and in words. */
function Viewers({ stream }: { stream: Stream }) {
  const all = viewersOf(stream);
  const watched = byDelivery(stream.viewers).filter(({ count }) => count > 0);
  let before = 0;
  return (
    <>
      <svg class="share" width="100%" height="8" aria-hidden="true">
        <rect class="rail" width="100%" height="8" rx="4" />
        {watched.map(({ delivery, count }) => {
          const x = (100 * before) / all;
          before += count;
          return (
            <rect
              key={delivery}
              class={`of-${delivery}`}
              x={`${x}%`}
              width={`${(100 * count) / all}%`}
              height="8"
            />
          );
        })}
      </svg>
      <ul class="legend">
        {watched.map(({ delivery, count }) => (
          <li key={delivery} class={`of-${delivery}`}>
            <span class="swatch" />
            {format.delivery(delivery)} <strong>{format.whole(count)}</strong>
          </li>
        ))}
        {watched.length === 0 && <li class="faint">nobody watches</li>}
      </ul>
    </>
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

/** How viewers are, as their players tell. */
export function QualityOf({ quality }: { quality: Quality }) {
  const { viewers, buffer, startup, throughput, bitrate, urgent, stalls } = quality;
  const figures: [string, string, string][] = [];
  const spread = (title: string, value: Spread | null, words: (value: number) => string, bad: string) => {
    if (value) figures.push([title, words(value.median), `one in ten: ${words(value.bad)} or ${bad}`]);
  };
  spread('Buffer', buffer, format.seconds, 'less');
  spread('First picture after', startup, format.seconds, 'more');
  spread('Throughput', throughput, format.bitrate, 'less');
  spread('Bitrate', bitrate, format.bitrate, 'less');
  figures.push(['Stalls', format.whole(stalls), 'since the stream began']);
  figures.push(['In need of media', format.whole(urgent), 'now']);
  return (
    <section class="card" aria-labelledby="quality">
      <header class="over">
        <h2 id="quality">What players tell</h2>
        <span class="faint">{format.counted(viewers, 'viewer')}</span>
      </header>
      <dl class="quality">
        {figures.map(([title, figure, more]) => (
          <div key={title}>
            <dt>{title}</dt>
            <dd class="newest">{figure}</dd>
            <dd class="faint">{more}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Addresses({ stream }: { stream: Stream }) {
  return (
    <details class="more">
      <summary>
        Addresses for players<span class="sr-only"> of {stream.name}</span>
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
  );
}

/** What is known of a stream, below its name: advice, tracks, publishers, viewers and addresses. */
export function Facts({ stream, heading: Heading }: { stream: Stream; heading: 'h3' | 'h4' }) {
  return (
    <>
      <AdviceList stream={stream} />
      <div class="columns">
        <Tracks stream={stream} />
        <section>
          <Heading>Publisher{stream.publishers.length > 1 ? 's' : ''}</Heading>
          <Publishers stream={stream} />
        </section>
        <section>
          <Heading>{format.counted(viewersOf(stream), 'viewer')}</Heading>
          <Viewers stream={stream} />
        </section>
      </div>
      <Addresses stream={stream} />
    </>
  );
}
