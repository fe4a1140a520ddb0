import { Feed, type Order, type Report } from './feed';
import { sourceClass } from './store';

/** What this module is called when it is built: it is the worker's script as well. */
const PUBLISHED = './push.js';
/** Tells the worker's copy of this module what it is for. */
const WORKER_NAME = 'headwater-push';
/** What says nothing for so long is another script, where this one was bundled with others. Milliseconds. */
const SILENCE = 2_000;

/** Has a feed: in a worker where that can be, else here. */
export class Host {
  private worker: Worker | null = null;
  private feed: Feed | null = null;
  /** What the worker was told before it said anything, for a feed in its stead. */
  private unheard: Order[] = [];
  private silence: ReturnType<typeof setTimeout> | undefined;
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
        // It could not be loaded: forbidden by a content security policy, or moved.
        if (this.silence !== undefined) giveUp();
        else this.hear({ is: 'broken', reason: message });
      };
      return worker;
    } catch {
      // This module comes from another origin.
      return null;
    }
  }

  /** The worker said something, or is not waited for any more. */
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
