/** A value at each time. `null` where it is not known. */
export type Values = readonly (number | null)[];

/** One line of a chart. */
export interface Line {
  /** Names its colour, and is the same from one drawing to the next. */
  id: string;
  label: string;
  values: Values;
}

/** The range of an axis, and where it has marks. */
export interface Scale {
  low: number;
  high: number;
  ticks: number[];
}

/** Where the plot is in its picture, in pixels. */
export interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** The server takes a sample each five seconds. If none came for so long, some are missing; in seconds. */
const GAP = 15;

/** How much time a chart can show, in seconds. Half of each is a round figure, too. */
const SPANS = [240, 600, 1800, 3600];

/** How much time to show, in seconds: the least that has all samples, and at most an hour. */
export function spanOf(at: readonly number[]): number {
  const lasted = (at.at(-1) ?? 0) - (at[0] ?? 0);
  return SPANS.find((span) => lasted <= span) ?? 3600;
}

/**
 * An axis from 0, or from the lowest value if that is below 0, to a round figure at or above all values and `least`. It
 * has two to five marks. With `whole` the marks are whole numbers.
 */
export function scaleOf(all: Iterable<number | null>, least: number, whole = false): Scale {
  let [lowest, highest] = [0, least];
  for (const value of all) {
    if (value === null) continue;
    lowest = Math.min(lowest, value);
    highest = Math.max(highest, value);
  }
  // Then 0 is in the middle.
  if (lowest < 0) [lowest, highest] = [-Math.max(-lowest, highest), Math.max(-lowest, highest)];
  const rough = (highest - lowest) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const nice =
    [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= rough * 0.999_999) ?? rough;
  const step = whole ? Math.max(1, Math.ceil(nice)) : nice;
  const [first, last] = [Math.floor(lowest / step + 1e-6), Math.ceil(highest / step - 1e-6)];
  const ticks = Array.from({ length: last - first + 1 }, (_, i) => {
    // 3 * 0.1 is a little more than 0.3.
    const tick = Number(((first + i) * step).toPrecision(6));
    return tick === 0 ? 0 : tick;
  });
  return { low: first * step, high: last * step, ticks };
}

/** The indices of samples that follow each other without a gap, as `[first, last]`. */
export function runsOf(at: readonly number[], values: Values): [number, number][] {
  const runs: [number, number][] = [];
  let before: number | null = null;
  at.forEach((time, index) => {
    const value = values[index];
    if (value === null || value === undefined) {
      before = null;
      return;
    }
    const run = runs.at(-1);
    if (run && before !== null && time - before <= GAP) run[1] = index;
    else runs.push([index, index]);
    before = time;
  });
  return runs;
}

/** Puts lines on top of each other: each gets the values of all before it, too. What is not known counts as 0. */
export function stacked(lines: readonly Line[]): Line[] {
  let below: Values = [];
  return lines.map((line) => {
    below = line.values.map((value, index) => (value ?? 0) + (below[index] ?? 0));
    return { ...line, values: below };
  });
}

/** Turns samples into places in a picture: `span` seconds up to the newest sample. */
export class Plot {
  private readonly newest: number;

  constructor(
    readonly at: readonly number[],
    readonly span: number,
    readonly scale: Scale,
    readonly box: Box,
  ) {
    this.newest = at.at(-1) ?? 0;
  }

  x(time: number): number {
    const { left, right } = this.box;
    return round(right - ((this.newest - time) / this.span) * (right - left));
  }

  y(value: number): number {
    const { top, bottom } = this.box;
    const { low, high } = this.scale;
    return round(bottom - ((value - low) / (high - low)) * (bottom - top));
  }

  /** A line through the values, for the `d` of an SVG path. It is broken where samples are missing. */
  line(values: Values): string {
    return this.runs(values).map(draw).join('');
  }

  /** The area from `below` to the values. */
  area(values: Values, below: Values): string {
    return runsOf(this.at, values)
      .map(([first, last]) => {
        const back = this.points(below, first, last).reverse();
        return `${draw([...this.points(values, first, last), ...back])}Z`;
      })
      .join('');
  }

  /** The sample that is nearest to a place, as its index. `null` if none is near. */
  nearest(x: number): number | null {
    const { left, right } = this.box;
    const time = this.newest - ((right - x) / (right - left)) * this.span;
    return nearestOf(this.at, time, GAP);
  }

  private runs(values: Values) {
    return runsOf(this.at, values).map(([first, last]) => this.points(values, first, last));
  }

  private points(values: Values, first: number, last: number): [number, number][] {
    const points: [number, number][] = [];
    for (let index = first; index <= last; index++)
      points.push([this.x(this.at[index] ?? 0), this.y(values[index] ?? 0)]);
    return points;
  }
}

/** The index of the time that is nearest to `wanted`, and not further away than `most`. */
export function nearestOf(at: readonly number[], wanted: number, most: number): number | null {
  let best: number | null = null;
  let least = most;
  at.forEach((time, index) => {
    const distance = Math.abs(time - wanted);
    if (distance > least) return;
    least = distance;
    best = index;
  });
  return best;
}

/** The least and the greatest of the values that are known; null if none is. */
export function rangeOf(values: Values): { least: number; greatest: number } | null {
  let range: { least: number; greatest: number } | null = null;
  for (const value of values) {
    if (value === null) continue;
    range ??= { least: value, greatest: value };
    range.least = Math.min(range.least, value);
    range.greatest = Math.max(range.greatest, value);
  }
  return range;
}

function draw(points: [number, number][]): string {
  const [first, ...others] = points;
  if (!first) return '';
  // A line without length is a point, because its ends are round.
  const onwards = others.length > 0 ? `L${others.map((point) => point.join(' ')).join(' ')}` : 'h0.01';
  return `M${first.join(' ')}${onwards}`;
}

/** A tenth of a pixel is enough. */
function round(value: number): number {
  return Math.round(value * 10) / 10;
}
