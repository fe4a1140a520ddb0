import { Feed, type Order, type Report } from './feed';
import { sourceClass } from './store';

/** What this module is called when it is built: it is the worker's script as well. */
const PUBLISHED = './push.js';
/** Tells the worker's copy of this module what it is for. */
const WORKER_NAME = 'headwater-push';

/** Has a feed: in a worker where that can be, else here. */
export class Host {
  private worker: Worker | null = null;
  private feed: Feed | null = null;
  /** Counts the feeds: what an earlier one still says is not news. */
  private run = 0;

  /** `script` is the worker's: true for this module, false for no worker. */
  constructor(
    private readonly script: boolean | string | URL,
    private readonly hear: (report: Report) => void,
  ) {}

  get inWorker(): boolean {
    return this.worker !== null;
  }

  /** Begins with a feed that knows nothing, and gives it its first order. */
  start(first: Order): void {
    this.stop();
    const worker = this.startWorker(first);
    if (worker) {
      this.worker = worker;
      worker.postMessage(first);
    } else {
      this.startHere(first);
    }
  }

  order(order: Order): void {
    if (this.worker) this.worker.postMessage(order);
    else this.feed?.obey(order);
  }

  stop(): void {
    this.order({ do: 'close' });
    this.worker?.terminate();
    this.worker = null;
    this.feed = null;
    this.run += 1;
  }

  private startWorker(first: Order): Worker | null {
    const Class = sourceClass() as { canConstructInDedicatedWorker?: boolean } | undefined;
    if (this.script === false || typeof Worker === 'undefined' || !Class?.canConstructInDedicatedWorker) {
      return null;
    }
    const { run } = this;
    let ready = false;
    try {
      const script = this.script === true ? new URL(PUBLISHED, import.meta.url) : this.script;
      const worker = new Worker(script, { type: 'module', name: WORKER_NAME });
      worker.onmessage = ({ data }: MessageEvent<Report>) => {
        ready = true;
        if (this.run === run) this.hear(data);
      };
      worker.onerror = ({ message }) => {
        if (this.run !== run) return;
        if (ready) {
          this.hear({ is: 'broken', reason: message });
          return;
        }
        // It could not be loaded: forbidden by a content security policy, or moved.
        worker.terminate();
        this.worker = null;
        this.startHere(first);
      };
      return worker;
    } catch {
      // This module comes from another origin.
      return null;
    }
  }

  private startHere(first: Order): void {
    const { run } = this;
    this.feed = new Feed((report) => {
      if (this.run === run) this.hear(report);
    });
    this.feed.obey(first);
  }
}

/** In a worker that a host started, this module is its feed. */
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
