import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  assertAccessible,
  CONNECT,
  keep,
  openPage,
  PATIENCE,
  putOff,
  SMALL,
  startServer,
  stats,
  untilCondition,
  untilEnough,
  untilLive,
  untilState,
} from './support.mjs';
import {
  asksWithReason,
  closePages,
  open as openIn,
  play,
  publish,
  received,
  startCamera,
} from './webrtc.mjs';

let server;
let browser;

before(async () => {
  server = await startServer();
  browser = await startCamera();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

const open = () => openIn(browser, server);

/** A clip that scripts/make-media.sh has made. */
const clip = (name) => fileURLToPath(new URL(`../../target/media/mp4/${name}`, import.meta.url));

/** The sizes of the first pictures that ffmpeg decodes, such as `640x360`. */
async function decode(url, pictures) {
  const words = `-nostdin -xerror -i ${url} -an -frames:v ${pictures} -vf showinfo -f null -`;
  const { stderr } = await promisify(execFile)('ffmpeg', words.split(' '), { timeout: PATIENCE });
  return [...stderr.matchAll(/ n: *\d+ .* s:(\d+x\d+) /g)].map(([, size]) => size);
}

describe('WebRTC', () => {
  afterEach((test) => closePages(browser, test));

  test('a camera is published, and watched by WebRTC and LL-HLS', async () => {
    const publisher = await open();
    const session = await publish(publisher, `${server.url}/live/camera/whip`);
    await untilLive(server.url, 'live/camera', ({ tracks }) => tracks.length === 2);

    const viewer = await open();
    await play(viewer, `${server.url}/live/camera/whep`);
    const video = await received(viewer, 'video', (stats) => stats.framesDecoded > 60);
    assert.equal(video.frameWidth, 320);
    const isHeard = ({ totalAudioEnergy, packetsReceived }) => totalAudioEnergy > 0 && packetsReceived > 50;
    await received(viewer, 'audio', isHeard);
    assert.equal(await viewer.evaluate(() => window.streams.size), 1, 'both are one stream, in step');
    await untilLive(server.url, 'live/camera', ({ viewers }) => viewers.webrtc === 1);

    const watcher = await openPage(browser, SMALL);
    await watcher.page.goto(`${server.url}/watch/live/camera?via=llhls`);
    await watcher.page.waitForFunction(() => document.querySelector('video')?.currentTime > 1);
    assert.deepEqual(watcher.complaints, []);

    const near = await openPage(browser, SMALL);
    await putOff(near.page, CONNECT);
    await near.page.goto(`${server.url}/watch/live/camera?via=webrtc`);
    await untilCondition(near.page, 'playing');
    await near.page.waitForFunction(() => window.headwater.stats().frameRate > 0);
    // A busy machine may be late, but nothing is shown before it was captured.
    await near.page.waitForFunction(() => window.headwater.stats().latency !== null);
    const { engine, latency } = await stats(near.page);
    assert.ok(latency > -0.1 && latency < 10, `${latency} s behind live`);
    assert.deepEqual(near.complaints, []);
    assert.equal(engine, 'WebRTC');
    await keep(near.page, 'webrtc');

    // Nothing is missing, so the viewer has no reason to ask for another keyframe.
    const later = await received(viewer, 'video', (stats) => stats.framesDecoded > 120);
    assert.ok(asksWithReason(later), JSON.stringify(later));
    const ended = await publisher.evaluate(async (session) => {
      return (await fetch(session, { method: 'DELETE' })).status;
    }, session);
    assert.equal(ended, 200);
  });

  // Layers of one encoding are in the same temporal units.
  for (const [mode, width] of [
    ['L1T1', 320],
    ['L2T2', 640],
  ]) {
    test(`a camera is published in AV1 (${mode}), and watched in each way`, async () => {
      const name = `av1-${mode}`;
      const publisher = await open();
      const sendEncodings = [{ scalabilityMode: mode }];
      await publish(publisher, `${server.url}/live/${name}/whip`, { codec: 'AV1', width, sendEncodings });
      const codecs = ({ tracks }) => tracks.map(({ codec }) => codec).sort();
      const stream = await untilLive(server.url, `live/${name}`, ({ tracks }) => tracks.length === 2);
      assert.match(codecs(stream)[0], /^av01\.0\./);
      const sent = await publisher.evaluate(async () => {
        const all = [...(await window.peer.getStats()).values()];
        return all.find(({ type, kind }) => type === 'outbound-rtp' && kind === 'video').scalabilityMode;
      });
      assert.equal(sent, mode, 'Chromium leaves out layers of small pictures');

      const viewer = await open();
      await play(viewer, `${server.url}/live/${name}/whep`);
      const video = await received(viewer, 'video', (stats) => stats.framesDecoded > 60);
      assert.deepEqual([video.codec, video.frameWidth], ['video/AV1', width]);
      assert.ok(asksWithReason(video), JSON.stringify(video));
      await received(viewer, 'audio', (stats) => stats.totalAudioEnergy > 0);

      // ffmpeg decodes pictures of the highest layer.
      for (const path of ['index.m3u8', 'live.mp4']) {
        const decoded = await decode(`${server.url}/live/${name}/${path}`, 30);
        assert.ok(decoded.length >= 30, `${path}: ${decoded.length} pictures`);
        assert.deepEqual([...new Set(decoded)], [`${width}x${(width * 3) / 4}`], path);
      }

      for (const [via, engine] of [
        ['llhls', /^hls\.js/],
        ['dash', /^dash\.js/],
        ['push', /^MediaSource/],
        ['webrtc', /^WebRTC/],
      ]) {
        const { page, complaints } = await openPage(browser, SMALL);
        if (via === 'webrtc') await putOff(page, CONNECT);
        await page.goto(`${server.url}/watch/live/${name}?via=${via}`);
        await untilCondition(page, 'playing');
        await page.waitForFunction((width) => document.querySelector('video').videoWidth === width, width);
        assert.match((await stats(page)).engine, engine);
        assert.deepEqual(complaints, [], via);
        await page.context().close();
      }
    });
  }

  test('the layers of simulcast in AV1 are renditions', async () => {
    const publisher = await open();
    const sendEncodings = [
      { rid: 'l', scaleResolutionDownBy: 2, scalabilityMode: 'L1T1' },
      { rid: 'h', scalabilityMode: 'L1T1' },
    ];
    await publish(publisher, `${server.url}/live/av1-sizes/whip`, {
      codec: 'AV1',
      width: 640,
      sendEncodings,
    });
    const { tracks } = await untilLive(server.url, 'live/av1-sizes', ({ tracks }) => tracks.length === 3);
    for (const [rendition, size] of [
      ['l', '320x240'],
      ['h', '640x480'],
    ]) {
      const { name, codec } = tracks.find((track) => track.rendition === rendition);
      assert.match(codec, /^av01\.0\./);
      const decoded = await decode(`${server.url}/live/av1-sizes/${name}/media.m3u8`, 15);
      assert.deepEqual([...new Set(decoded)], [size]);
    }
    const viewer = await open();
    await play(viewer, `${server.url}/live/av1-sizes/whep`);
    const video = await received(viewer, 'video', (stats) => stats.framesDecoded > 30);
    assert.equal(video.codec, 'video/AV1');
  });

  test('AV1 by RTMP is watched, and H.264 beside it by those who have no AV1', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'headwater-webrtc-'));
    const own = join(folder, 'av1.mp4');
    // Frames that are decoded now and shown later: several are in one temporal unit, and others have none.
    const words =
      '-nostdin -v error -f lavfi -i testsrc2=s=320x180:r=30:d=4 -f lavfi -i sine=d=4 -c:v libsvtav1 ' +
      `-preset 12 -g 30 -b:v 300k -pix_fmt yuv420p -c:a aac ${own}`;
    const env = { ...process.env, SVT_LOG: '1' };
    await promisify(execFile)('ffmpeg', words.split(' '), { timeout: PATIENCE, env });
    const stop = [];
    const push = (file, rendition) => {
      const words = ['publish', file, `${server.rtmp}/live/both?rendition=${rendition}`, '--loop'];
      const program = spawn(process.env.HEADWATER_BIN, words, { stdio: ['ignore', 'ignore', 'inherit'] });
      stop.push(() => program.kill());
    };
    const url = `${server.url}/live/both/whep`;
    const video = ({ tracks }) => tracks.filter(({ kind }) => kind === 'video');
    try {
      push(own, 'a');
      await untilLive(server.url, 'live/both', (stream) => video(stream).length === 1);
      const viewer = await open();
      await play(viewer, url);
      const seen = await received(viewer, 'video', (stats) => stats.framesDecoded > 60);
      assert.deepEqual([seen.codec, seen.frameWidth], ['video/AV1', 320]);
      assert.ok(asksWithReason(seen), JSON.stringify(seen));
      const other = await open();
      await assert.rejects(play(other, url, ['H264', 'VP8']), /406: the stream's video is AV1, which is not/);

      push(clip('film.mp4'), 'h');
      await untilLive(server.url, 'live/both', (stream) => video(stream).length === 2);
      for (const [names, codec] of [
        [['AV1', 'H264'], 'video/H264'],
        [['VP8', 'AV1'], 'video/AV1'],
      ]) {
        const viewer = await open();
        await play(viewer, url, names);
        const seen = await received(viewer, 'video', (stats) => stats.framesDecoded > 10);
        assert.equal(seen.codec, codec);
      }
    } finally {
      for (const each of stop) each();
      await rm(folder, { recursive: true });
    }
  });

  test('the page that publishes sends the camera, with what is chosen meanwhile, and may begin again', async () => {
    const publisher = await openPage(browser);
    const { page } = publisher;
    await page.goto(`${server.url}/publish/live/own`);
    const start = page.getByRole('button', { name: 'Start publishing' });
    await page.waitForFunction(() => document.querySelector('.preview video').videoWidth > 0);
    await assertAccessible(page);
    await start.click();
    await page.getByTestId('state').getByText('Live').waitFor();
    await untilLive(server.url, 'live/own', ({ tracks }) => tracks.length === 2);
    await page.waitForFunction(() =>
      /bit\/s/.test(document.querySelector('[data-testid=bitrate]').textContent),
    );
    await page.waitForFunction(() => /×/.test(document.querySelector('[data-testid=video]').textContent));
    await keep(page, 'publish');

    const viewer = await openPage(browser, SMALL);
    await viewer.page.goto(`${server.url}/watch/live/own?via=webrtc`);
    await untilCondition(viewer.page, 'playing');

    // Another size and bit rate change the devices of the same session.
    await page.getByLabel('Size').selectOption('360');
    // Changes that come while others are made wait for them.
    await page.getByLabel('Bitrate at most').evaluate((select) => {
      for (const value of [...select.options].map(({ value }) => value).concat('500000')) {
        select.value = value;
        select.dispatchEvent(new Event('change', { bubbles: true }));
      }
    });
    await page.waitForFunction(() => document.querySelector('.preview video').videoHeight === 360);
    const { decodedFrames } = await stats(viewer.page);
    await viewer.page.waitForFunction(
      (seen) => window.headwater.stats().decodedFrames > seen + 30,
      decodedFrames,
    );
    assert.deepEqual(publisher.complaints, []);

    // Somebody else cannot publish the name meanwhile, and is told so.
    const second = await openPage(browser, SMALL);
    await second.page.goto(`${server.url}/publish/live/own`);
    await second.page.getByRole('button', { name: 'Start publishing' }).click();
    await second.page.getByRole('alert').getByText('The server says').waitFor();
    assert.equal(await second.page.getByTestId('state').textContent(), 'Not published');

    await page.getByRole('button', { name: 'Stop publishing' }).click();
    await page.getByTestId('state').getByText('Not published').waitFor();
    await untilState(server.url, 'live/own', 'offline');
    await start.click();
    await untilLive(server.url, 'live/own');
    await page.getByTestId('state').getByText('Live').waitFor();
    assert.deepEqual(publisher.complaints, []);
  });

  test('the page sends simulcast, and each layer is a rendition', async () => {
    const publisher = await openPage(browser);
    const { page } = publisher;
    await page.goto(`${server.url}/publish/live/sizes`);
    await page.waitForFunction(() => document.querySelector('.preview video').videoWidth > 0);
    await page.getByLabel('smaller pictures').check();
    await page.getByRole('button', { name: 'Start publishing' }).click();
    await page.getByTestId('state').getByText('Live').waitFor();
    const video = ({ tracks }) => tracks.filter(({ kind }) => kind === 'video');
    const stream = await untilLive(server.url, 'live/sizes', (stream) => video(stream).length === 3);
    const sizes = video(stream).map(({ rendition, height }) => [rendition, height]);
    assert.deepEqual(sizes.sort(), [
      ['h', 720],
      ['l', 180],
      ['m', 360],
    ]);
    await page.getByTestId('layers').getByText('1280 × 720').waitFor();
    assert.equal(await page.getByTestId('layers').locator('tbody tr').count(), 3);
    assert.ok(await page.getByLabel('smaller pictures').isDisabled());
    await assertAccessible(page);
    await keep(page, 'simulcast');

    // Each is in the playlist, and ffmpeg decodes each.
    await untilEnough(
      async () => (await fetch(`${server.url}/live/sizes/index.m3u8`)).text(),
      (text) => ['1280x720', '640x360', '320x180'].every((size) => text.includes(`RESOLUTION=${size}`)),
      'not all are in the playlist',
    );
    for (const { name, width, height } of video(stream)) {
      const input = `${server.url}/live/sizes/${name}/media.m3u8`;
      const decoded = await decode(input, 15);
      assert.deepEqual(new Set(decoded), new Set([`${width}x${height}`]), name);
      assert.ok(decoded.length >= 15, `${decoded.length} pictures of ${name}`);
    }
    const viewer = await openPage(browser, SMALL);
    await viewer.page.goto(`${server.url}/watch/live/sizes?via=llhls`);
    await untilCondition(viewer.page, 'playing');
    // A viewer by WebRTC gets what its link carries. On a busy machine, that may be any layer.
    const near = await openPage(browser, SMALL);
    await putOff(near.page, CONNECT);
    await near.page.goto(`${server.url}/watch/live/sizes?via=webrtc`);
    await near.page.waitForFunction(() =>
      [180, 360, 720].includes(document.querySelector('video').videoHeight),
    );
    for (const { complaints } of [publisher, viewer, near]) assert.deepEqual(complaints, []);
  });

  test('a stream by RTMP is watched', async () => {
    const viewer = await open();
    const session = await play(viewer, `${server.url}/live/demo/whep`);
    const video = await received(viewer, 'video', (stats) => stats.framesDecoded > 30);
    assert.equal(video.frameWidth, 1280);
    // Its audio is AAC, of which the server makes Opus.
    await received(viewer, 'audio', (stats) => stats.packetsReceived > 50);
    const ended = await viewer.evaluate(async (session) => {
      return (await fetch(session, { method: 'DELETE' })).status;
    }, session);
    assert.equal(ended, 200);
    await untilLive(server.url, 'live/demo', ({ viewers }) => viewers.webrtc === 0);
  });
});
