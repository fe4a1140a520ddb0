import { ask, BadAnswer, list, number, record, text } from './api';

/** A node of the cluster. */
export interface Node {
  name: string;
  zone: string;
  /** Where viewers reach it, as an http or https URL; null if it does not say. */
  address: string | null;
  /** Whether it takes new viewers. */
  ready: boolean;
  /** The share of its machine's processors that its program uses, from 0 to 1; null if it does not say. */
  load: number | null;
  viewers: number;
  /** How many streams it has. */
  streams: number;
  /** How many streams of other nodes it copies. */
  copies: number;
  /** How long ago it was heard, in seconds. */
  heard: number;
}

/** A node that went away a short time ago. */
export type Gone = Pick<Node, 'name' | 'zone' | 'address' | 'heard'>;

export interface SharedStream {
  name: string;
  /** The node that has it; null if only copies are left. */
  node: string | null;
  /** Whether somebody publishes it. */
  live: boolean;
  /** The nodes that copy it, and how long ago each copy had all, in seconds. */
  copies: { node: string; behind: number }[];
}

export interface Cluster {
  /** The node that answers. */
  node: string;
  nodes: Node[];
  gone: Gone[];
  streams: SharedStream[];
  /** How many streams the answer leaves out. */
  leftOut: number;
}

/** Gets the nodes from the server. Rejects if the server cannot be reached or its answer is invalid. */
export async function readCluster(): Promise<Cluster> {
  return parseCluster(await ask('/api/v1/cluster'));
}

/** Reads the answer of `GET /api/v1/cluster`. A node or stream without a name is an error. */
export function parseCluster(answer: unknown): Cluster {
  const cluster = record(answer);
  if (!Array.isArray(cluster.nodes)) throw new BadAnswer('the list of nodes is missing');
  return {
    node: text(cluster.node) ?? '',
    nodes: list(cluster.nodes).map((node) => ({
      ...seen(node),
      ready: node.ready === true,
      load: number(node.load),
      viewers: number(node.viewers) ?? 0,
      streams: number(node.streams) ?? 0,
      copies: number(node.copies) ?? 0,
    })),
    gone: list(cluster.gone).map(seen),
    streams: list(cluster.streams).map((stream) => ({
      name: named(stream, 'stream'),
      node: text(stream.node),
      live: stream.live === true,
      copies: list(stream.copies).map((copy) => ({
        node: text(copy.node) ?? '',
        behind: number(copy.behind_seconds) ?? 0,
      })),
    })),
    leftOut: number(cluster.streams_left_out) ?? 0,
  };
}

function seen(node: Record<string, unknown>): Gone {
  const address = text(node.address) ?? '';
  return {
    name: named(node, 'node'),
    zone: text(node.zone) ?? '',
    // Another scheme is no link that this page offers.
    address: /^https?:\/\//.test(address) ? address : null,
    heard: number(node.heard_seconds) ?? 0,
  };
}

function named(value: Record<string, unknown>, what: string): string {
  const name = text(value.name);
  if (name === null) throw new BadAnswer(`a ${what} without a name`);
  return name;
}
