import { Feed, type Order, type Report } from './feed';
import { sourceClass } from './store';

/** The name of this module when it is built. It is also the worker's script. */
const PUBLISHED = './push.js';
/** Tells the worker's copy of this module its purpose. */
const WORKER_NAME = 'headwater-push';
/**
 * A worker that says nothing for this long runs another script, because this module was bundled
 * with others. Milliseconds.
 */
const SILENCE = 2_000;

/** Runs a feed, in a worker if possible, otherwise in the page. */
export class Host {
  private worker: Worker | null = null;
  private feed: Feed | null = null;
  /** Orders to the worker before its first report. If it stays silent, another feed gets them. */
  private unheard: Order[] = [];
  private silence: ReturnType<typeof setTimeout> | undefined;
  /** Number of the present feed. Reports of earlier feeds are ignored. */
  private run = 0;

  /** `script` is the worker's script: true for this module, false for no worker. */
  constructor(
    private readonly script: boolean | string | URL,
    private readonly hear: (report: Report) => void,
  ) {}

  get inWorker(): boolean {
    return this.worker !== null;
  }

  /** Starts a new feed and gives it its first order. */
  start(first: Order): void {
    this.stop();
    this.unheard = [];
    this.worker = this.startWorker();
    if (this.worker) this.order(first);
    else this.startHere([first]);
  }

  order(order: Order): void {
    if (this.silence !== undefined) this.unheard.push(order);
    if (this.worker) this.worker.postMessage(order);
    else this.feed?.obey(order);
  }

  stop(): void {
    this.order({ do: 'close' });
    this.heard();
    this.worker?.terminate();
    this.worker = null;
    this.feed = null;
    this.run += 1;
  }

  private startWorker(): Worker | null {
    const Class = sourceClass() as { canConstructInDedicatedWorker?: boolean } | undefined;
    if (this.script === false || typeof Worker === 'undefined' || !Class?.canConstructInDedicatedWorker) {
      return null;
    }
    const { run } = this;
    try {
      const script = this.script === true ? new URL(PUBLISHED, import.meta.url) : this.script;
      const worker = new Worker(script, { type: 'module', name: WORKER_NAME });
      const giveUp = () => {
        worker.terminate();
        this.worker = null;
        this.heard();
        this.startHere(this.unheard);
      };
      this.silence = setTimeout(giveUp, SILENCE);
      worker.onmessage = ({ data }: MessageEvent<Report>) => {
        if (this.run !== run) return;
        this.heard();
        this.hear(data);
      };
      worker.onerror = ({ message }) => {
        if (this.run !== run) return;
        // The worker could not be loaded: a content security policy forbids it, or it was moved.
        if (this.silence !== undefined) giveUp();
        else this.hear({ is: 'broken', reason: message });
      };
      return worker;
    } catch {
      // This module comes from another origin.
      return null;
    }
  }

  /** Notes that the worker has reported, or that nobody waits for it any more. */
  private heard(): void {
    clearTimeout(this.silence);
    this.silence = undefined;
  }

  private startHere(orders: Order[]): void {
    const { run } = this;
    const feed = new Feed((report) => {
      if (this.run === run) this.hear(report);
    });
    this.feed = feed;
    for (const order of orders) feed.obey(order);
  }
}

/** Runs this module as a feed, if a host has started it in a worker. */
export function serve(): void {
  const scope = globalThis as unknown as {
    name?: string;
    onmessage: ((event: MessageEvent<Order>) => void) | null;
    postMessage(message: Report, transfer: Transferable[]): void;
  };
  if (typeof document !== 'undefined' || scope.name !== WORKER_NAME) return;
  const feed = new Feed((report, transfer = []) => scope.postMessage(report, transfer));
  scope.onmessage = ({ data }) => feed.obey(data);
}
