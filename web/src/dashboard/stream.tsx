import type { Stream } from '../shared/api';
import * as format from '../shared/format';
import { usePolled } from '../shared/polled';
import { watchUrl } from '../shared/streams';
import { readEnded, readOpen, readStreamHistory, type StreamHistory } from './api';
import { Chart, Charts, count } from './charts';
import { unlisted } from './model';
import { SAMPLED } from './overview';
import { Facts, QualityOf, State } from './parts';
import { SessionTable } from './table';

/** The sessions of the stream are asked for so often, in milliseconds. */
const SESSIONS = 2_000;

const OLDEST = { key: 'since', descending: false } as const;
const NEWEST = { key: 'since', descending: true } as const;

/** One stream: its last hour, its health, and who publishes and watches it. `stream` is null if there is none. */
export function StreamView({ name, stream }: { name: string; stream: Stream | null }) {
  const history = usePolled(() => readStreamHistory(name), undefined, SAMPLED).value;
  const open = usePolled(() => readOpen(name), undefined, SESSIONS);
  const ended = usePolled(() => readEnded(name), undefined, SAMPLED).value;
  return (
    <>
      {stream ? (
        <section class="card stream" aria-labelledby="state">
          <h2 id="state" class="sr-only">
            State
          </h2>
          <header>
            <State stream={stream} />
            <a class="watch" href={watchUrl(name)}>
              Watch<span class="sr-only"> {name}</span>
            </a>
          </header>
          <Facts stream={stream} heading="h3" />
        </section>
      ) : (
        <section class="card empty">
          <h2>{name} is not here</h2>
          <p>Nobody publishes it, and it is no longer kept. It appears here by itself when somebody does.</p>
        </section>
      )}
      {stream && <Figures history={history} />}
      {stream?.quality && <QualityOf quality={stream.quality} />}
      <SessionTable
        id="publishers"
        title="Publishers"
        sessions={open.value?.publishers ?? null}
        without={['behind', 'rendition']}
        none={unlisted(stream?.publishers ?? [])}
        sorting={OLDEST}
      />
      <SessionTable
        id="viewers"
        title="Viewers one by one"
        sessions={open.value?.viewers ?? null}
        none="Nobody views the stream now."
        sorting={OLDEST}
      />
      <SessionTable
        id="ended"
        title="Ended within the last hour"
        sessions={ended}
        without={['behind', 'rendition']}
        none="No publisher or viewer has left."
        over
        sorting={NEWEST}
      />
    </>
  );
}

function Figures({ history }: { history: StreamHistory | null }) {
  const line = (id: string, values: (number | null)[] | undefined) => [
    { id, label: id, values: values ?? [] },
  ];
  return (
    <Charts at={history?.at ?? null}>
      {(shared) => (
        <>
          <Chart
            {...shared}
            title="Viewers"
            lines={line('viewers', history?.viewers)}
            words={count}
            least={4}
            whole
          />
          <Chart
            {...shared}
            title="Bitrate"
            lines={line('sent', history?.bitsPerSecond)}
            words={format.bitrate}
            least={1e6}
          />
          <Chart
            {...shared}
            title="Frame rate"
            lines={line('frames', history?.frameRate)}
            words={(value) => (value === 0 ? '0 fps' : format.frameRate(value))}
            least={32}
          />
          <Chart
            {...shared}
            title="Keyframes apart"
            lines={line('keyframes', history?.keyframeDistance)}
            words={format.seconds}
            mark={(value) => `${value} s`}
            least={4}
          />
          <Chart
            {...shared}
            title="Audio ahead of video"
            lines={line('offset', history?.audioOffset)}
            words={milliseconds}
            least={0.1}
          />
        </>
      )}
    </Charts>
  );
}

/** `+7 ms`, `−120 ms`: audio is behind. */
function milliseconds(value: number | null | undefined): string {
  if (typeof value !== 'number') return format.UNKNOWN;
  const whole = Math.round(value * 1000);
  return `${whole > 0 ? '+' : whole < 0 ? '−' : ''}${format.whole(Math.abs(whole))} ms`;
}
