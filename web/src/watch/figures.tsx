import * as format from '../shared/format';
import { DELIVERIES } from '../shared/streams';
import type { Stats } from './session';

/** The overhead of the delivery, if it is counted. */
function overhead({ traffic }: Stats) {
  if (traffic === null) return [];
  const { media, overhead } = traffic;
  return [
    {
      id: 'overhead',
      name: 'Overhead',
      value: `${format.whole(overhead)} bytes`,
      note: `${format.share(overhead, media)} of ${format.bytes(media)}`,
    },
  ];
}

/** The most important figures of the playback. */
export function Figures({ stats, recorded, label }: { stats: Stats; recorded: boolean; label: string }) {
  const delivery = DELIVERIES.find(({ via }) => via === stats.via)?.label ?? format.UNKNOWN;
  const figures: { name: string; value: string; note?: string | undefined; large?: boolean; id: string }[] = [
    // A file has no live edge.
    recorded
      ? {
          id: 'position',
          name: 'Position',
          value: format.duration(stats.currentTime),
          note: stats.duration === null ? undefined : `of ${format.duration(stats.duration)}`,
          large: true,
        }
      : {
          id: 'latency',
          name: 'Behind live',
          value: format.seconds(stats.latency),
          note: stats.targetLatency === null ? undefined : `aims at ${format.seconds(stats.targetLatency)}`,
          large: true,
        },
    {
      id: 'buffer',
      name: 'Buffer',
      value: format.seconds(stats.engine === null ? null : stats.buffer),
      large: true,
    },
    { id: 'stalls', name: 'Stalls', value: format.stalls(stats.stalls, stats.stallSeconds) },
    {
      id: 'bitrate',
      name: 'Bitrate',
      value: format.bitrate(stats.bitrate),
      note: stats.rendition === null ? undefined : `rendition ${stats.rendition}`,
    },
    {
      id: 'resolution',
      name: 'Resolution',
      value: format.resolution(stats.width, stats.height),
      note: stats.frameRate === null ? undefined : format.frameRate(stats.frameRate),
    },
    {
      id: 'dropped',
      name: 'Dropped frames',
      value: format.dropped(stats.droppedFrames, stats.decodedFrames),
    },
    { id: 'delivery', name: 'Delivery', value: delivery, note: stats.engine ?? undefined },
    ...overhead(stats),
    {
      id: 'state',
      name: 'State',
      value: stats.paused && stats.condition === 'playing' ? 'Paused' : label,
      note: stats.playbackRate === 1 ? undefined : `at ${stats.playbackRate.toFixed(2)} × speed`,
    },
  ];
  return (
    <section aria-labelledby="figures">
      <h2 id="figures" class="sr-only">
        Playback figures
      </h2>
      <dl class="figures">
        {figures.map(({ id, name, value, note, large }) => (
          <div key={id} class={large ? 'large' : ''}>
            <dt>{name}</dt>
            <dd data-testid={id}>
              {value}
              <span class="note">{note ?? ' '}</span>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
