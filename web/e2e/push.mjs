import { once } from 'node:events';
import { createServer } from 'node:http';
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
