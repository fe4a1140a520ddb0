// Pages with hls.js or dash.js alone, with their default settings.
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

/**
 * Runs in the page before its own scripts. Delays the answers of workers by `late` milliseconds,
 * and keeps their order.
 */
export function answerLate(late) {
  const { addEventListener } = Worker.prototype;
  Worker.prototype.addEventListener = function (type, listener, ...options) {
    const later = (event) => setTimeout(() => listener.call(this, event), late);
    addEventListener.call(this, type, type === 'message' ? later : listener, ...options);
  };
}

/** Players with their default settings: the name of the page, and the manifest that it plays. */
const PLAIN = { plain: 'index.m3u8', 'plain-dash': 'manifest.mpd' };

/** The URL that plays `live/NAME` by `via`: a delivery of the watch page, or a player of PLAIN. */
export function addressOf(server, plain, name, via) {
  return via in PLAIN
    ? `${plain.url}${via}?url=${encodeURIComponent(`${server.url}/live/${name}/${PLAIN[via]}`)}`
    : `${server.url}/watch/live/${name}?via=${via}`;
}

/**
 * Starts a site with two pages, one for hls.js and one for dash.js, with their default settings.
 */
export async function startPlain() {
  const { resolve } = createRequire(import.meta.url);
  const libraries = {
    '/hls.js': await readFile(resolve('hls.js/dist/hls.js')),
    '/dash.js': await readFile(resolve('dashjs')),
  };
  const page = (player) => `<!doctype html><title>${player}</title><video muted autoplay></video>
    <script src="/${player}.js"></script>
    <script>
      const [url, video] = [new URLSearchParams(location.search).get('url'), document.querySelector('video')];
      if (window.Hls) {
        window.hls = new Hls();
        window.watchHls?.(hls);
        hls.loadSource(url);
        hls.attachMedia(video);
      } else dashjs.MediaPlayer().create().initialize(video, url, true);
    </script>`;
  const site = createServer(({ url }, response) => {
    const { pathname } = new URL(url, 'http://localhost');
    const library = libraries[pathname];
    if (library) response.writeHead(200, { 'Content-Type': 'text/javascript' }).end(library);
    else if (pathname === '/favicon.ico') response.writeHead(204).end();
    else
      response
        .writeHead(200, { 'Content-Type': 'text/html' })
        .end(page(pathname === '/plain-dash' ? 'dash' : 'hls'));
  });
  site.listen(0, '127.0.0.1');
  await once(site, 'listening');
  return {
    url: `http://127.0.0.1:${site.address().port}/`,
    close() {
      site.closeAllConnections();
      site.close();
    },
  };
}

/**
 * Runs in the page before its own scripts. Notes by how many seconds hls.js places each fragment or
 * part later than the media in it begin (`placed`). Notes also which media it may leave out because
 * it fell behind (`behind`, from and to; docs/player.md, "Where hls.js stands still"):
 *
 * - It asked late: a playlist has several new parts, and the second was captured before hls.js asked.
 * - It parsed late: a part is parsed when the playlist has its whole segment, and hls.js has not
 *   loaded the next part of the segment. It may lose the rest of the segment. Without a part of the
 *   video, the browser decodes nothing before the next keyframe.
 *
 * All times are those of hls.js.
 */
export function noteHls() {
  [window.placed, window.behind] = [[], []];
  window.watchHls = (hls) => {
    const newest = { main: null, audio: null };
    hls.on('hlsFragBuffered', (_event, { frag, part }) => {
      const of = part ?? frag;
      const media = part ? part.elementaryStreams : frag.elementaryStreams;
      for (const kind of ['audio', 'video']) {
        const stream = media?.[kind];
        if (stream)
          window.placed.push({ kind, sn: frag.sn, part: part?.index, off: of.start - stream.startPTS });
      }
      const details = newest[frag.type];
      const isRest = ({ fragment, index, loaded }) =>
        fragment.sn === frag.sn && index > part.index && !loaded;
      if (part && details && frag.sn <= details.endSN && (details.partList ?? []).some(isRest))
        window.behind.push(() => [part.start, part.end + 2 * details.targetduration]);
    });
    for (const [event, type] of [
      ['hlsLevelLoaded', 'main'],
      ['hlsAudioTrackLoaded', 'audio'],
    ]) {
      let before = null;
      hls.on(event, (_event, { details, stats }) => {
        newest[type] = details;
        const { partList, lastPartSn, lastPartIndex } = details;
        const isNew = ({ fragment: { sn }, index }) =>
          sn > before.sn || (sn === before.sn && index > before.index);
        const [, second] = before ? (partList ?? []).filter(isNew) : [];
        if (second) {
          const { fragment, fragOffset, duration } = second;
          const captured = fragment.programDateTime + (fragOffset + duration) * 1000;
          const asked = performance.timeOrigin + stats.loading.start;
          const from = before.details;
          if (captured < asked) window.behind.push(() => [from.partEnd, details.partEnd]);
        }
        before = { sn: lastPartSn, index: lastPartIndex, details };
      });
    }
  };
}

/** The media that hls.js may leave out in this page, because it fell behind: from and to. */
export function fellBehind(page) {
  // hls.js places the media of a playlist a little after it has read it. So this asks late.
  return page.evaluate(() => window.behind.map((media) => media()));
}

/** Whether the time `at` lies in media that hls.js may leave out. */
export function isBehind(behind, at) {
  return behind.some(([from, to]) => from - 0.1 <= at && at <= to);
}

/** Notes of each standing whether it was in media that hls.js may leave out. */
export function markBehind(standings, behind) {
  for (const standing of standings) standing.behind = isBehind(behind, standing.time);
}
