import { readdirSync, readFileSync } from 'node:fs';

/** How often the processes are looked at, in milliseconds. */
const EVERY = 200;
/** After so many looks, the processes are found anew. */
const FIND = 10;
/**
 * A thread was not run if it waited for a processor for longer than LONG, in milliseconds, and for this share of the
 * time between two looks.
 */
const [LONG, ALMOST_ALL] = [300, 0.9];
/** How many earlier milliseconds count: a page that has a second of media stands a second later than its server. */
const BEFORE = 2_000;

/** When a process that brings media was not run although it wanted to be: [from, to], of `Date.now()`. */
const stops = [];
/** The processes that bring media. */
let processes = [];
/** For how long each of their threads has waited for a processor, and each processor for the host, in milliseconds. */
let waited = new Map();
let [looks, looked] = [0, Date.now()];

function read(path) {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}

function threads(pid) {
  try {
    return readdirSync(`/proc/${pid}/task`).map((thread) => `/proc/${pid}/task/${thread}`);
  } catch {
    return [];
  }
}

/** The processes that a process started, and those that they started. */
function* descendants(pid) {
  for (const thread of threads(pid)) {
    for (const child of read(`${thread}/children`).split(' ').filter(Boolean)) {
      yield child;
      yield* descendants(child);
    }
  }
}

/**
 * Whether a process brings media: servers, publishers and proxies do, and of Chromium's processes the one that has its
 * connections. A page tells itself when it was not run (standings.mjs).
 */
function bringsMedia(pid) {
  const isChromium = /^(chrom|headless)/.test(read(`/proc/${pid}/comm`));
  return !isChromium || read(`/proc/${pid}/cmdline`).includes('network.mojom');
}

/** Whether Linux may let a thread wait for long. */
const isNice = (thread) => Number(read(`${thread}/stat`).split(') ')[1]?.split(' ')[16]) > 0;

/** How long each thread and processor has waited so far (proc_pid_schedstat(5), proc_stat(5)). */
function* waits() {
  for (const thread of processes.flatMap(threads)) {
    const [, nanoseconds] = read(`${thread}/schedstat`).split(' ');
    if (nanoseconds) yield [thread, Number(nanoseconds) / 1e6];
  }
  for (const [, processor, stolen] of read('/proc/stat').matchAll(/^(cpu\d+)(?: \d+){7} (\d+)/gm)) {
    yield [processor, Number(stolen) * 10];
  }
}

function look() {
  if (looks % FIND === 0) processes = [...descendants(process.pid)].filter(bringsMedia);
  looks += 1;
  const [now, before] = [Date.now(), waited];
  waited = new Map(waits());
  for (const [what, time] of waited) {
    // The kernel counts a wait when it is over. This process may not have been run at the same time.
    const wait = time - (before.get(what) ?? time);
    const wasStopped = wait > LONG && wait > ALMOST_ALL * (now - looked);
    if (wasStopped && !isNice(what)) stops.push([now - wait, now]);
  }
  looked = now;
}

let isWatching = false;
/** Looks from now on at the processes that this one starts. */
export function watchProcesses() {
  if (!isWatching) setInterval(look, EVERY).unref();
  isWatching = true;
}

/**
 * For how many milliseconds of a time Linux did not run a process that brings media, or the host a processor. Times are of
 * `Date.now()`.
 */
export function stoppedWithin(from, to) {
  look();
  let [sum, end] = [0, from];
  for (const [begin, over] of stops.toSorted(([a], [b]) => a - b)) {
    const [first, last] = [Math.max(begin, end), Math.min(over, to)];
    if (last > first) [sum, end] = [sum + last - first, last];
  }
  return sum;
}

/** The same of the time for which a page stood, and of a moment before. */
export const stoppedFor = ({ began, ms }) => stoppedWithin(began - BEFORE, began + ms);
