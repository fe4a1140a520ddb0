import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, createServer as createProxy } from 'node:net';
import { test } from 'node:test';
import { openPage } from './support.mjs';

/**
 * Makes tests whose body gets a page of that browser. Each test closes its page, whatever happens.
 */
export const pageTests = (browser) => (name, body, options) =>
  test(name, async (t) => {
    const opened = await openPage(browser(), options);
    try {
      await body(opened.page, opened.complaints, t);
    } finally {
      await opened.page.context().close();
    }
  });

/**
 * Starts a site, on an origin of its own, whose page plays a stream with the module from `server`.
 *
 * `play(page, stream, options, asked)` opens that page for `stream`, a path on the server or a
 * whole URL. `asked` has further parameters of the page: `seek`, the time to start at, and
 * `autoplay=no`.
 */
export async function startEmbed(server) {
  const page = `<!doctype html><title>embed</title><video muted autoplay></video><script type="module">
    import { PushPlayer } from '${server}/player/push.js';
    const asked = new URLSearchParams(location.search);
    const video = document.querySelector('video');
    video.autoplay = asked.get('autoplay') !== 'no';
    window.heard = [];
    window.player = new PushPlayer(video, asked.get('url'), JSON.parse(asked.get('options')));
    if (asked.has('seek')) window.player.seek(Number(asked.get('seek')));
    for (const name of ['open', 'rendition', 'latency', 'stats', 'reconnecting', 'end', 'error'])
      window.player.on(name, (event) => window.heard.push([name, event]));
  </script>`;
  const site = createServer((request, response) => {
    if (request.url === '/favicon.ico') response.writeHead(204).end();
    else if (request.url === '/silent.js')
      response.writeHead(200, { 'Content-Type': 'text/javascript' }).end();
    else response.writeHead(200, { 'Content-Type': 'text/html' }).end(page);
  });
  site.listen(0, '127.0.0.1');
  await once(site, 'listening');
  const close = () => {
    site.closeAllConnections();
    site.close();
  };
  const play = (page, stream, options = {}, asked = {}) => {
    const url = new URL(stream, server);
    const search = new URLSearchParams({ url, options: JSON.stringify(options), ...asked });
    return page.goto(`http://127.0.0.1:${site.address().port}/?${search}`);
  };
  return { play, close };
}

/**
 * Starts a proxy to the server. `drop` cuts all its connections and admits no new ones. `restore`
 * admits them again, to this server or another.
 */
export async function startProxy(url) {
  let { hostname, port } = new URL(url);
  const sockets = new Set();
  const proxy = createProxy((socket) => {
    const other = connect(Number(port), hostname);
    for (const [from, to] of [
      [socket, other],
      [other, socket],
    ]) {
      sockets.add(from);
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const address = proxy.address();
  const drop = async () => {
    const closed = once(proxy, 'close');
    proxy.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  return {
    url: `http://127.0.0.1:${address.port}`,
    drop,
    async restore(other = url) {
      ({ hostname, port } = new URL(other));
      proxy.listen(address.port, '127.0.0.1');
      await once(proxy, 'listening');
    },
    stop: drop,
  };
}
