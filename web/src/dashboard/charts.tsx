import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import * as format from '../shared/format';
import { type Line, Plot, rangeOf, scaleOf, spanOf, stacked, type Values } from './chart';
import { clock } from './sessions';

/** Height of a picture, in pixels, and that where there is little room. */
const [HIGH, LOW] = [132, 104];
/** Height of a legend, in pixels: charts without one are so much higher. */
const LEGEND = 26;
/** Room above and below the plot, in pixels. */
const [ABOVE, BELOW] = [16, 20];

/** What charts of the same times have in common. */
export interface Shared {
  /** When each sample was taken, in seconds since 1970. Null before the first answer. */
  at: readonly number[] | null;
  /** The sample that is read, as its index; null for the newest. All charts show the same. */
  read: number | null;
  onRead: (index: number | null) => void;
}

interface Props extends Shared {
  title: string;
  lines: readonly Line[];
  /** Writes a value. */
  words: (value: number | null | undefined) => string;
  /** Writes a mark of the axis, if that is not like a value. */
  mark?: (value: number) => string;
  /** What follows the figure, in small letters. */
  of?: string;
  /** The axis reaches at least this. */
  least: number;
  /** The values are counts. */
  whole?: boolean;
  /** Draws areas on top of each other, and their sum as the figure. Else the figure is that of the first line. */
  stack?: boolean;
}

/**
 * A chart of the last hour with its newest value in big figures. The pointer reads other times. Screen readers get the
 * value and its range.
 */
export function Chart({ title, lines, words, mark, of, least, whole, stack, at, read, onRead }: Props) {
  const id = useId();
  const picture = useRef<SVGSVGElement>(null);
  const width = useWidth(picture);
  const low = matchMedia('(width < 38rem)').matches;
  const legend = stack || lines.length > 1;
  const height = low ? LOW : HIGH + (legend ? 0 : LEGEND);
  const drawn = stack ? stacked(lines) : [...lines];
  const times = at ?? [];
  // The sum is the line on top. Without lines it is 0.
  const main = (stack ? drawn.at(-1)?.values : drawn[0]?.values) ?? (stack ? times.map(() => 0) : []);
  const last = times.length - 1;
  const index = Math.min(read ?? last, last);
  const span = spanOf(times);
  const scale = scaleOf(
    drawn.flatMap(({ values }) => values),
    least,
    whole,
  );
  const plot = new Plot(times, span, scale, { left: 0, right: width, top: ABOVE, bottom: height - BELOW });
  const time = times[index];
  const range = rangeOf(main);
  const point = (event: PointerEvent) => {
    const box = picture.current?.getBoundingClientRect();
    if (box) onRead(plot.nearest(event.clientX - box.left));
  };
  return (
    <section class="chart" aria-labelledby={id}>
      <h3 id={id}>{title}</h3>
      <p class="newest" data-testid="newest">
        {words(main[index])}
        {of && <small> {of}</small>}
      </p>
      <p class="sr-only" id={`${id}-about`}>
        {range
          ? `Over the last ${span / 60} minutes from ${words(range.least)} to ${words(range.greatest)}, now ${words(main[last])}.`
          : 'No figures yet.'}
      </p>
      <svg
        ref={picture}
        role="img"
        aria-label={title}
        aria-describedby={`${id}-about`}
        height={height}
        onPointerMove={point}
        onPointerDown={point}
        onPointerLeave={() => onRead(null)}
      >
        <g class="grid">
          {scale.ticks.map((tick) => (
            <line
              key={tick}
              class={tick === 0 ? 'zero' : ''}
              x1={0}
              x2={width}
              y1={plot.y(tick)}
              y2={plot.y(tick)}
            />
          ))}
        </g>
        {drawn.map((line, place) => (
          <g key={line.id} class={`line of-${line.id}`}>
            {stack && <path class="area" d={plot.area(line.values, drawn[place - 1]?.values ?? [])} />}
            <path
              class="stroke"
              data-testid="line"
              d={plot.line(stack ? visible(line, lines[place]) : line.values)}
            />
          </g>
        ))}
        {read !== null && time !== undefined && (
          <line class="reading" x1={plot.x(time)} x2={plot.x(time)} y1={ABOVE} y2={height - BELOW} />
        )}
        <g class="marks">
          {/* The mark of 0 would stand on those of the times. */}
          {scale.ticks
            .filter((tick) => tick !== 0 || scale.low < 0)
            // Of many marks, the lower ones leave no room to each other.
            .filter((_, place, { length }) => !low || length < 4 || (length - place) % 2 === 1)
            .map((tick) => (
              <text key={tick} x={0} y={plot.y(tick) - 3}>
                {mark ? mark(tick) : words(tick).replace('.0 ', ' ')}
              </text>
            ))}
        </g>
        <g class="marks">
          {read !== null && time !== undefined ? (
            <text
              x={Math.min(Math.max(plot.x(time), 26), width - 26)}
              y={height - 5}
              text-anchor="middle"
              class="at"
            >
              {clock(new Date(time * 1000), new Date())}
            </text>
          ) : (
            <>
              <text x={0} y={height - 5}>
                {span / 60} min ago
              </text>
              <text x={width / 2} y={height - 5} text-anchor="middle">
                {span / 120} min
              </text>
              <text x={width} y={height - 5} text-anchor="end">
                now
              </text>
            </>
          )}
        </g>
      </svg>
      {legend && (
        <ul class="legend" aria-label={`${title} by line`}>
          {lines.map((line) => (
            <li key={line.id} class={`of-${line.id}`}>
              <span class="swatch" />
              {line.label} <strong>{words(line.values[index])}</strong>
            </li>
          ))}
          {lines.length === 0 && <li class="faint">nobody</li>}
        </ul>
      )}
    </section>
  );
}

/** Charts beside each other, which are read at the same time. */
export function Charts({
  at,
  children,
}: {
  at: readonly number[] | null;
  children: (shared: Shared) => ComponentChildren;
}) {
  // The time, because the index of a sample changes with each new one.
  const [time, setTime] = useState<number | null>(null);
  const place = time === null || at === null ? -1 : at.indexOf(time);
  const shared: Shared = {
    at,
    read: place < 0 ? null : place,
    onRead: (index) => setTime(index === null ? null : (at?.[index] ?? null)),
  };
  return (
    <section aria-labelledby="last-hour">
      <header class="over">
        <h2 id="last-hour">The last hour</h2>
      </header>
      <div class="charts">{children(shared)}</div>
    </section>
  );
}

/** The upper edge of an area, where it has any height: else the edges of many would cover each other. */
function visible(area: Line, own: Line | undefined): Values {
  const has = (index: number) => Boolean(own?.values[index]);
  return area.values.map((value, index) => (has(index - 1) || has(index) || has(index + 1) ? value : null));
}

/** The width of an element, in pixels. */
function useWidth(element: { current: Element | null }): number {
  const [width, setWidth] = useState(300);
  useLayoutEffect(() => {
    const { current } = element;
    if (!current) return;
    const measure = () => setWidth(Math.max(1, Math.round(current.getBoundingClientRect().width)));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** A count with its noun is too long for an axis. */
export const count = (value: number | null | undefined) =>
  typeof value === 'number' ? format.whole(value) : format.UNKNOWN;
