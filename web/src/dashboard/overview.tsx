import * as format from '../shared/format';
import { usePolled } from '../shared/polled';
import { type NodeHistory, readNodeHistory } from './api';
import { Chart, Charts, count } from './charts';
import { byDelivery } from './model';

/** The server takes a sample so often, in milliseconds. */
export const SAMPLED = 5_000;

/** The last hour of this node: viewers, what is sent, processors and memory. */
export function LastHour() {
  const { value: history } = usePolled(readNodeHistory, undefined, SAMPLED);
  const processors = history?.processors ?? 1;
  return (
    <Charts at={history?.at ?? null}>
      {(shared) => (
        <>
          <Chart {...shared} title="Viewers" lines={viewers(history)} words={count} least={4} whole stack />
          <Chart
            {...shared}
            title="Sent to viewers"
            lines={[{ id: 'sent', label: 'Sent', values: history?.bitsPerSecond ?? [] }]}
            words={format.bitrate}
            least={1e6}
          />
          <Chart
            {...shared}
            title="Processors used"
            lines={[{ id: 'processors', label: 'Used', values: history?.processorsUsed ?? [] }]}
            words={(value) => (typeof value === 'number' ? value.toFixed(2) : format.UNKNOWN)}
            mark={(value) => String(value)}
            of={history ? `of ${format.whole(processors)}` : ''}
            least={processors / 5}
          />
          <Chart
            {...shared}
            title="Memory"
            lines={[
              { id: 'memory', label: 'All', values: history?.memory ?? [] },
              { id: 'media', label: 'Media', values: history?.liveMemory ?? [] },
            ]}
            words={bytes}
            least={1e7}
          />
        </>
      )}
    </Charts>
  );
}

/** The deliveries that had a viewer within the hour. */
function viewers(history: NodeHistory | null) {
  return byDelivery(history?.viewers ?? [])
    .filter(({ counts }) => counts.some((count) => count !== null && count > 0))
    .map(({ delivery, counts }) => ({ id: delivery, label: format.delivery(delivery), values: counts }));
}

const bytes = (value: number | null | undefined) =>
  typeof value === 'number' ? format.bytes(value) : format.UNKNOWN;
