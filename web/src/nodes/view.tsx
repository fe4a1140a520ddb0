import { type Cluster, type Gone, type Node, readCluster, type SharedStream } from '../shared/cluster';
import * as format from '../shared/format';
import { Messages, usePolled } from '../shared/polled';
import { watchUrl } from '../shared/streams';
import { ago, changes, type NodeState, percent, STATES, standing, stateOf, summary } from './model';

/** The nodes of the cluster: which are there, how busy they are, and which has and copies which stream. */
export function Nodes() {
  const reading = usePolled(readCluster, changes);
  const cluster = reading.value;
  return (
    <>
      <header class="bar">
        <a class="home" href="/">
          headwater
        </a>
        <h1>Nodes</h1>
        <a href="/">Streams of this node</a>
        {cluster && (
          <span class="summary" data-testid="summary">
            {summary(cluster)}
          </span>
        )}
      </header>
      <main class="dashboard">
        <Messages {...reading} />
        {cluster && <NodeTable cluster={cluster} />}
        {cluster && <StreamTable cluster={cluster} />}
      </main>
    </>
  );
}

function NodeTable({ cluster }: { cluster: Cluster }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls sideways must be reachable by keyboard
    <section class="card sideways" tabIndex={0} aria-label="Nodes">
      <table>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">State</th>
            <th scope="col">Zone</th>
            <th scope="col" class="figure">
              Load
            </th>
            <th scope="col" class="figure">
              Viewers
            </th>
            <th scope="col" class="figure">
              Streams
            </th>
            <th scope="col" class="figure">
              Copies
            </th>
            <th scope="col">Heard</th>
          </tr>
        </thead>
        <tbody>
          {cluster.nodes.map((node) => (
            <tr key={node.name} data-node={node.name}>
              <Begin node={node} state={stateOf(node)} here={node.name === cluster.node} />
              <td class="figure">{percent(node.load)}</td>
              <td class="figure">{format.whole(node.viewers)}</td>
              <td class="figure">{format.whole(node.streams)}</td>
              <td class="figure">{format.whole(node.copies)}</td>
              <td>{ago(node.heard)}</td>
            </tr>
          ))}
          {cluster.gone.map((node) => (
            <tr key={node.name} data-node={node.name} class="faint">
              <Begin node={node} state="gone" here={false} />
              <td class="figure" colSpan={4} />
              <td>{ago(node.heard)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** The first cells of a node's row, which nodes that are gone have, too. */
function Begin({ node, state, here }: { node: Gone | Node; state: NodeState; here: boolean }) {
  return (
    <>
      <th scope="row">
        {node.name}
        {here && <span class="here"> this node</span>}
        {/* No link: viewers reach the node here, and this listener refuses the dashboard to most of them. */}
        {node.address !== null && state !== 'gone' && <span class="here"> {node.address}</span>}
      </th>
      <td>
        <span class={`badge badge-node-${state}`}>{STATES[state]}</span>
      </td>
      <td>{node.zone || format.UNKNOWN}</td>
    </>
  );
}

function StreamTable({ cluster }: { cluster: Cluster }) {
  if (cluster.streams.length === 0) {
    return (
      <section class="card" aria-label="Streams">
        <p>No node has a stream. Publish one to any of them.</p>
      </section>
    );
  }
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls sideways must be reachable by keyboard
    <section class="card sideways" tabIndex={0} aria-label="Streams">
      <table>
        <thead>
          <tr>
            <th scope="col">Stream</th>
            <th scope="col">State</th>
            <th scope="col">Published at</th>
            <th scope="col">Copied by</th>
          </tr>
        </thead>
        <tbody>
          {cluster.streams.map((stream) => (
            <StreamRow key={stream.name} stream={stream} />
          ))}
        </tbody>
      </table>
      {cluster.leftOut > 0 && <p class="faint">and {format.counted(cluster.leftOut, 'further stream')}</p>}
    </section>
  );
}

function StreamRow({ stream }: { stream: SharedStream }) {
  const { name, node, live, copies } = stream;
  return (
    <tr data-stream={name}>
      <th scope="row">
        <a href={watchUrl(name)}>{name}</a>
      </th>
      <td>
        <span class={`badge badge-${live ? 'live' : 'offline'}`}>{live ? 'Live' : 'Publisher lost'}</span>
      </td>
      <td>{node ?? 'no node'}</td>
      <td>
        {copies.length === 0 && <span class="faint">nobody</span>}
        <ul class="copies">
          {copies.map((copy) => {
            const { late, words } = standing(copy.behind);
            return (
              <li key={copy.node}>
                {copy.node} <span class={late ? 'late' : 'faint'}>{words}</span>
              </li>
            );
          })}
        </ul>
      </td>
    </tr>
  );
}
