import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  CONNECT,
  openPage,
  PATIENCE,
  putOff,
  SMALL,
  startBrowser,
  startServer,
  untilCondition,
  untilEnough,
  untilState,
} from './support.mjs';

const STREAM = 'live/demo';
/** Made by scripts/make-media.sh. */
const TITLES = fileURLToPath(new URL('../../target/media/mp4', import.meta.url));

let browser;
/** A site of another origin: header fields of CMCD need its preflights. */
let site;

const start = {
  hls: (url, cmcd) => {
    const hls = new window.Hls({ cmcd });
    hls.loadSource(`${url}/index.m3u8`);
    hls.attachMedia(document.querySelector('video'));
  },
  dash: (url, cmcd) => {
    const player = window.dashjs.MediaPlayer().create();
    player.updateSettings({ streaming: { cmcd } });
    player.initialize(document.querySelector('video'), `${url}/manifest.mpd`, true);
  },
};

before(async () => {
  const { resolve } = createRequire(import.meta.url);
  const scripts = {
    '/hls.js': await readFile(resolve('hls.js/dist/hls.min.js')),
    '/dash.js': await readFile(
      new URL('../node_modules/dashjs/dist/modern/umd/dash.all.min.js', import.meta.url),
    ),
  };
  const server = createServer(({ url }, response) => {
    const script = scripts[url];
    response.setHeader('Content-Type', script ? 'text/javascript' : 'text/html');
    response.end(script ?? `<script src="${url}.js"></script><video muted autoplay></video>`);
  });
  await new Promise((listens) => server.listen(0, '127.0.0.1', listens));
  site = { url: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  site?.stop();
});

/** Waits until `enough` holds of the text of the metrics. */
const untilMetrics = (url, enough) =>
  untilEnough(async () => (await fetch(`${url}/metrics`)).text(), enough, 'not these metrics');

const total = (viewers) => Object.values(viewers).reduce((sum, count) => sum + count, 0);

/** Waits until `enough` holds of what the server says of the stream. */
const until = (server, enough) => untilState(server.url, STREAM, 'live', enough);

/** Plays in a page of another site. The viewer must be counted once, by this delivery, and tell of these. */
async function plays(player, cmcd, deliveries, tells = ['buffer_seconds']) {
  const server = await startServer({ config: '# Nobody else watches here.' });
  const { page, complaints } = await openPage(browser, SMALL);
  try {
    await page.goto(`${site.url}/${player}`);
    const url = `${server.url}/${STREAM}`;
    const options = JSON.parse(JSON.stringify(cmcd).replaceAll('URL', url));
    await page.evaluate(`(${start[player]})(${JSON.stringify(url)}, ${JSON.stringify(options)})`);
    const { viewers, quality } = await until(
      server,
      ({ viewers, quality }) =>
        tells.every((figure) => quality?.[figure]?.median > 0) &&
        total(viewers) === 1 &&
        deliveries.some((by) => viewers[by]),
    );
    assert.equal(quality.viewers, 1, JSON.stringify({ viewers, quality }));
    assert.deepEqual(complaints, []);
  } finally {
    await page.context().close();
    await server.stop();
  }
}

describe('other players', () => {
  const hls = ['llhls', 'hls'];
  for (const useHeaders of [false, true]) {
    const how = useHeaders ? 'header fields' : 'the query';
    test(`hls.js tells by ${how}`, { timeout: 3 * PATIENCE }, async () => {
      await plays('hls', { useHeaders }, hls, ['buffer_seconds', 'throughput', 'bitrate']);
    });
    test(`dash.js tells by ${how}`, { timeout: 3 * PATIENCE }, async () => {
      const cmcd = { enabled: true, mode: useHeaders ? 'header' : 'query' };
      await plays('dash', cmcd, ['dash'], ['buffer_seconds', 'throughput']);
    });
  }

  test('hls.js tells by events alone', { timeout: 3 * PATIENCE }, async () => {
    const eventTargets = [{ url: 'URL/cmcd', events: ['t', 'ps'], interval: 10 }];
    await plays('hls', { version: 2, includeKeys: [], eventTargets }, hls);
  });
});

describe('our page', () => {
  for (const via of ['llhls', 'hls', 'dash', 'push', 'webrtc']) {
    test(`tells by ${via} until it is left`, { timeout: 3 * PATIENCE }, async () => {
      // Nobody else watches here. On a busy machine, a page may leave LL-HLS where parts are shorter.
      const server = await startServer({ config: '[live]\npart_target = "500ms"\n' });
      const { page, complaints } = await openPage(browser, SMALL);
      try {
        if (via === 'webrtc') await putOff(page, CONNECT);
        await page.goto(`${server.url}/watch/${STREAM}?via=${via}`);
        await untilCondition(page, 'playing');
        const { quality } = await until(
          server,
          ({ viewers, quality }) =>
            quality?.startup_seconds?.median > 0 && total(viewers) === 1 && viewers[via] === 1,
        );
        assert.equal(quality.viewers, 1);
        await page.goto('about:blank');
        await until(server, ({ viewers, quality }) => !quality?.viewers && total(viewers) === 0);
        assert.deepEqual(complaints, []);
      } finally {
        await page.context().close();
        await server.stop();
      }
    });
  }

  for (const via of ['hls', 'dash', 'push', 'file']) {
    test(`tells of a title by ${via}`, { timeout: 3 * PATIENCE }, async () => {
      const server = await startServer({ vod: TITLES, demo: false });
      const { page, complaints } = await openPage(browser, SMALL);
      try {
        await page.goto(`${server.url}/watch/vod/late-index.mp4?via=${via}`);
        // Those who play the file itself are not counted.
        const of = 'stream="vod/late-index.mp4"';
        const told = [`headwater_quality_viewers{${of}} 1`, `headwater_quality_startup_seconds{${of}`];
        if (via !== 'file') told.push(`headwater_viewers{${of},delivery="${via}"} 1`);
        await untilMetrics(server.url, (metrics) => told.every((line) => metrics.includes(line)));
        await page.goto('about:blank');
        await untilMetrics(server.url, (metrics) => !metrics.includes(`headwater_viewers{${of}`));
        assert.deepEqual(complaints, []);
      } finally {
        await page.context().close();
        await server.stop();
      }
    });
  }
});
