/**
 * A proxy whose connections a test can cut, and which may be far away. It runs in a process of its own, so that media go on to
 * the page where the test's own process is late.
 *
 * As a program: `node proxy.mjs URL DELAY`, with a channel to its parent. It sends its port, and an answer
 * to each command. `startProxy` sends the commands.
 */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { Transform } from 'node:stream';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(import.meta.url);
/**
 * Where proxies listen. While a proxy admits nobody, Linux may give the number of its port to another test, but at another
 * address.
 */
const HOST = '127.0.0.2';

/**
 * Starts a proxy to a server. Bytes take `delay` milliseconds each way.
 *
 * - `drop` cuts all connections and admits no new ones.
 * - `cut` does the same, and admits new ones after so many milliseconds, however late the test is by then.
 * - `mute` lets nothing pass on the connections that there are, and does not end them. New ones are as before.
 * - `restore` cuts all connections that are left, and admits new ones, to this server or another.
 */
export async function startProxy(url, delay = 0) {
  const child = fork(PROGRAM, [url, String(delay)]);
  const gone = once(child, 'exit').then(([status]) => {
    throw new Error(`the proxy ended with status ${status}`);
  });
  gone.catch(() => undefined);
  const answer = async () => (await Promise.race([once(child, 'message'), gone]))[0];
  const say = async (command) => {
    child.send(command);
    await answer();
  };
  const port = await answer();
  return {
    url: `http://${HOST}:${port}`,
    drop: () => say({}),
    mute: () => say({ mute: true }),
    cut: (back) => say({ back }),
    restore: (to = url) => say({ to }),
    stop: async () => {
      child.kill();
      await gone.catch(() => undefined);
    },
  };
}

/** Lets bytes through `delay` milliseconds after they came. */
function late(delay) {
  return new Transform({
    transform(bytes, _encoding, done) {
      setTimeout(() => this.push(bytes), delay);
      done();
    },
    flush(done) {
      setTimeout(done, delay);
    },
  });
}

/** Serves until the parent ends. */
async function serve(url, delay) {
  let { hostname, port } = new URL(url);
  const sockets = new Set();
  const proxy = createServer((socket) => {
    const other = connect(Number(port), hostname);
    for (const [from, to] of [
      [socket, other],
      [other, socket],
    ]) {
      sockets.add(from);
      (delay > 0 ? from.pipe(late(delay)) : from).pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  const listen = async (at) => {
    proxy.listen(at, HOST);
    await once(proxy, 'listening');
  };
  await listen(0);
  const own = proxy.address().port;
  let again;
  process.on('message', async ({ to, back, mute }) => {
    clearTimeout(again);
    if (mute) {
      for (const socket of sockets) socket.unpipe().pause();
    } else if (proxy.listening) {
      const closed = once(proxy, 'close');
      proxy.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    }
    if (to) {
      ({ hostname, port } = new URL(to));
      await listen(own);
    }
    process.send('done');
    if (back) again = setTimeout(() => listen(own), back);
  });
  process.on('disconnect', () => process.exit());
  process.send(own);
}

if (process.argv[1] === PROGRAM) await serve(process.argv[2], Number(process.argv[3]));
