import type { Cluster, Node } from '../shared/cluster';
import * as format from '../shared/format';

/** Nodes announce themselves each second. One that was not heard for so long is silent, in seconds. */
const SILENT = 3;
/** The node of a stream tells each half second how far it is. A copy that had all within this time is up to date. */
const UP_TO_DATE = 1;

/** `gone` is the state of a node that is listed as gone. */
export type NodeState = 'ready' | 'draining' | 'silent' | 'gone';

export const STATES: Record<NodeState, string> = {
  ready: 'Ready',
  draining: 'Draining',
  silent: 'Silent',
  gone: 'Gone',
};

export function stateOf({ ready, heard }: Pick<Node, 'ready' | 'heard'>): NodeState {
  if (heard > SILENT) return 'silent';
  return ready ? 'ready' : 'draining';
}

/** `3 nodes, 2 live streams, 5 viewers` */
export function summary({ nodes, streams, leftOut }: Cluster): string {
  const live = streams.filter((stream) => stream.live).length;
  const viewers = nodes.reduce((sum, node) => sum + node.viewers, 0);
  // Whether the others are live is not known.
  const counted =
    leftOut > 0 ? `over ${format.whole(live)} live streams` : format.counted(live, 'live stream');
  return `${format.counted(nodes.length, 'node')}, ${counted}, ${format.counted(viewers, 'viewer')}`;
}

/** How far a copy is: `up to date`, `3.2 s behind`. */
export function standing(behind: number): { late: boolean; words: string } {
  const late = behind > UP_TO_DATE;
  return { late, words: late ? `${behind.toFixed(1)} s behind` : 'up to date' };
}

/** A share as whole percent: `12 %`. */
export function percent(share: number | null): string {
  return share === null ? format.UNKNOWN : `${Math.round(100 * share)} %`;
}

/** `now`, `12 s ago`, `3 min ago` */
export function ago(seconds: number): string {
  if (seconds < SILENT) return 'now';
  return seconds < 60 ? `${Math.floor(seconds)} s ago` : `${Math.floor(seconds / 60)} min ago`;
}

/** The differences between two answers as a sentence for screen readers, or null: nodes that came or went. */
export function changes(before: Cluster, after: Cluster): string | null {
  const has = (cluster: Cluster, wanted: string) => cluster.nodes.some(({ name }) => name === wanted);
  const came = after.nodes.filter(({ name }) => !has(before, name)).map(({ name }) => `${name} has come`);
  const went = before.nodes.filter(({ name }) => !has(after, name)).map(({ name }) => `${name} has gone`);
  const said = [...came, ...went];
  return said.length > 0 ? `${said.join('. ')}.` : null;
}
