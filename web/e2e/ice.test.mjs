import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { after, afterEach, before, describe, test } from 'node:test';
import {
  AGAIN,
  awaitAnswers,
  CONNECT,
  openPage,
  putOff,
  SMALL,
  startServer,
  stats,
  untilCondition,
  untilEnough,
  untilLive,
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

/**
 * Relays the datagrams of one peer to a port of this machine. `deafen` lets none pass to the peer any more: the
 * server goes on to hear the peer, however long a busy machine takes. After `close` nobody is at the relay's port.
 */
async function relay(port) {
  const [front, back] = [createSocket('udp4'), createSocket('udp4')];
  let peer = null;
  let isDeaf = false;
  front.on('message', (datagram, { port: from, address }) => {
    peer = [from, address];
    back.send(datagram, port, '127.0.0.1');
  });
  back.on('message', (datagram) => {
    if (peer && !isDeaf) front.send(datagram, ...peer);
  });
  for (const socket of [front, back]) {
    // A test that fails leaves them.
    socket.bind(0, '127.0.0.1').unref();
    await once(socket, 'listening');
  }
  const close = () => {
    for (const socket of [front, back]) socket.close();
  };
  const deafen = () => {
    isDeaf = true;
  };
  return { port: front.address().port, deafen, close };
}

/** The candidate pair that a page uses: its own user fragment, the pair's state, and the server's protocol. */
const pairOf = (page) =>
  page.evaluate(async () => {
    const all = await window.peer.getStats();
    const [transport] = [...all.values()].filter(({ type }) => type === 'transport');
    const pair = all.get(transport.selectedCandidatePairId);
    const { usernameFragment: fragment } = all.get(pair?.localCandidateId) ?? {};
    return { fragment, state: pair?.state, protocol: all.get(pair?.remoteCandidateId)?.protocol };
  });

/**
 * Makes a page know the server's port by a relay only, until ICE restarts. Returns what it asked the server since, as
 * method and status, and the relays.
 */
async function viaRelay(page) {
  const [asked, relays] = [[], []];
  await page.route(/\/wh[ie]p$/, async (route) => {
    const response = await route.fetch(AGAIN);
    const text = (await response.text()).replace(/a=candidate:\S+ \d+ tcp .*\r\n/gi, '');
    const [, port] = / (\d+) typ host/.exec(text) ?? [];
    const made = await relay(Number(port));
    relays.push(made);
    const body = text.replaceAll(` ${port} typ host`, ` ${made.port} typ host`);
    await route.fulfill({ response, body });
  });
  page.on('response', (response) => {
    if (/\/live\/\w+\/wh[ie]p/.test(response.url()))
      asked.push(`${response.request().method()} ${response.status()}`);
  });
  return { asked, relays };
}

describe('ways of WebRTC to the server', () => {
  afterEach((test) => closePages(browser, test));

  test('where no datagram passes, media go by TCP both ways', async () => {
    /** A page to which the server's addresses for UDP are unknown. */
    const openApart = async () => {
      const page = await open();
      await page.route(/\/wh[ie]p$/, async (route) => {
        const response = await route.fetch(AGAIN);
        const body = (await response.text()).replace(/a=candidate:\S+ \d+ udp .*\r\n/gi, '');
        await route.fulfill({ response, body });
      });
      return page;
    };
    const publisher = await openApart();
    await publish(publisher, `${server.url}/live/apart/whip`);
    await untilLive(server.url, 'live/apart', ({ tracks }) => tracks.length === 2);
    const viewer = await openApart();
    await play(viewer, `${server.url}/live/apart/whep`);
    const video = await received(viewer, 'video', (stats) => stats.framesDecoded > 60);
    assert.equal(video.frameWidth, 320);
    await received(viewer, 'audio', (stats) => stats.totalAudioEnergy > 0);
    for (const page of [publisher, viewer]) assert.equal((await pairOf(page)).protocol, 'tcp');
  });

  test('a page restarts ICE, and its session goes on both ways', async () => {
    const [publisher, viewer] = [await open(), await open()];
    const published = await publish(publisher, `${server.url}/live/restarts/whip`);
    await untilLive(server.url, 'live/restarts', ({ tracks }) => tracks.length === 2);
    const session = await play(viewer, `${server.url}/live/restarts/whep`);
    const { framesDecoded } = await received(viewer, 'video', (stats) => stats.framesDecoded > 30);

    /** Restarts ICE as RFC 9725 says. */
    const restart = (page, session) =>
      page.evaluate(async (session) => {
        const { peer } = window;
        peer.restartIce();
        await peer.setLocalDescription();
        const { sdp } = peer.localDescription;
        const body = sdp
          .match(/^a=ice-(ufrag|pwd):.*$/gm)
          .slice(0, 2)
          .join('\r\n');
        const headers = { 'content-type': 'application/trickle-ice-sdpfrag', 'if-match': '*' };
        const answer = await fetch(session, { method: 'PATCH', headers, body: `${body}\r\n` });
        if (answer.status !== 200) throw new Error(`${answer.status}: ${await answer.text()}`);
        const told = await answer.text();
        const of = (name) => told.match(new RegExp(`^a=${name}:.*$`, 'm'))[0];
        const candidates = told.match(/^a=candidate:.*$/gm).join('\r\n');
        const next = peer.remoteDescription.sdp
          .replace(/^a=candidate:.*\r\n/gm, '')
          .replace(/^a=ice-ufrag:.*$/gm, of('ice-ufrag'))
          .replace(/^a=ice-pwd:.*$/gm, of('ice-pwd'))
          .replace(/^a=ice-pwd:.*$/m, (line) => `${line}\r\n${candidates}`);
        await peer.setRemoteDescription({ type: 'answer', sdp: next });
      }, session);

    for (const [page, url] of [
      [viewer, session],
      [publisher, published],
    ]) {
      const before = await pairOf(page);
      assert.ok(before.fragment);
      await restart(page, url);
      const isAnother = ({ fragment, state }) => fragment !== before.fragment && state === 'succeeded';
      await untilEnough(() => pairOf(page), isAnother, `no pair but that of ${before.fragment}`);
    }
    const later = await received(viewer, 'video', (stats) => stats.framesDecoded > framesDecoded + 90);
    assert.ok(asksWithReason(later), JSON.stringify(later));
    // They are the sessions that they were.
    await untilLive(server.url, 'live/restarts', ({ viewers }) => viewers.webrtc === 1);
    const playlist = await (await fetch(`${server.url}/live/restarts/v0/media.m3u8`)).text();
    assert.doesNotMatch(playlist, /DISCONTINUITY/);
    for (const [page, url] of [
      [viewer, session],
      [publisher, published],
    ]) {
      const ended = page.evaluate(async (url) => (await fetch(url, { method: 'DELETE' })).status, url);
      assert.equal(await ended, 200);
    }
  });

  test('pages whose way to the server ends go on by another one, with the same session', async () => {
    const publisher = await openPage(browser);
    const publishing = await viaRelay(publisher.page);
    await awaitAnswers(publisher.page);
    await publisher.page.goto(`${server.url}/publish/live/ways`);
    await publisher.page.waitForFunction(() => document.querySelector('.preview video').videoWidth > 0);
    await publisher.page.getByRole('button', { name: 'Start publishing' }).click();
    await untilLive(server.url, 'live/ways', ({ tracks }) => tracks.length === 2);
    const viewer = await openPage(browser, SMALL);
    const watching = await viaRelay(viewer.page);
    // The viewer comes to a network that lets no datagrams pass.
    await viewer.page.addInitScript(() => {
      const { fetch } = window;
      window.fetch = async (url, options) => {
        const answer = await fetch(url, options);
        if (options?.method !== 'PATCH') return answer;
        const told = await answer.text();
        return new Response(told.replace(/a=candidate:\S+ \d+ udp .*\r\n/gi, ''), answer);
      };
    });
    await putOff(viewer.page, CONNECT);
    await awaitAnswers(viewer.page);
    await viewer.page.goto(`${server.url}/watch/live/ways?via=webrtc`);
    await untilCondition(viewer.page, 'playing');

    for (const { asked, relays } of [watching, publishing]) {
      for (const relay of relays) relay.deafen();
      // A page may have asked before: where this process, which has the relay, was not run for a while.
      await untilEnough(
        () => asked,
        (all) => all.includes('PATCH 200'),
        'no restart',
      );
      for (const relay of relays) relay.close();
      const { decodedFrames } = await stats(viewer.page);
      await viewer.page.waitForFunction(
        (seen) => window.headwater.stats().decodedFrames > seen + 60,
        decodedFrames,
      );
      assert.equal(asked.filter((one) => one.startsWith('POST')).length, 1, `${asked}`);
    }
    assert.equal((await stats(viewer.page)).engine, 'WebRTC');
    await untilCondition(viewer.page, 'playing');
    await publisher.page.getByTestId('state').getByText('Live').waitFor();
    for (const { complaints } of [publisher, viewer]) assert.deepEqual(complaints, []);
  });

  test('a page whose server restarts no ICE goes over to LL-HLS', async () => {
    const { page } = await openPage(browser, SMALL);
    const { asked, relays } = await viaRelay(page);
    await page.route(/\/whep\/\w+$/, async (route) => {
      if (route.request().method() === 'PATCH') await route.fulfill({ status: 422 });
      else await route.continue();
    });
    await putOff(page, CONNECT);
    await page.goto(`${server.url}/watch/live/demo?via=webrtc`);
    await untilCondition(page, 'playing');
    for (const relay of relays) relay.deafen();
    await page.getByText('This page went over to LL-HLS.').waitFor();
    await untilCondition(page, 'playing');
    assert.deepEqual(asked.slice(0, 2), ['POST 201', 'PATCH 422']);
    for (const relay of relays) relay.close();
  });

  test('a page does not blame the network while a stream has no media yet', async () => {
    const { page } = await openPage(browser, SMALL);
    // Its limits for a connection run out only when the test lets them.
    await page.addInitScript((connect) => {
      const { setTimeout, clearTimeout } = window;
      window.limits = [];
      // No browser gives a timer a negative number.
      window.setTimeout = (call, time, ...rest) =>
        time === connect ? -window.limits.push(call) : setTimeout.call(window, call, time, ...rest);
      window.clearTimeout = (id) => {
        if (id < 0) window.limits[-id - 1] = null;
        else clearTimeout.call(window, id);
      };
    }, CONNECT);
    let asked = 0;
    await page.route('**/whep', async (route) => {
      asked += 1;
      // As headwater answers (crates/headwater/tests/webrtc/bad_input.rs).
      if (asked < 3) return route.fulfill({ status: 503, body: 'the stream has no media yet' });
      await page.evaluate(() => window.limits[0]?.());
      await route.continue();
    });
    await page.goto(`${server.url}/watch/live/demo?via=webrtc`);
    await untilCondition(page, 'playing');
    assert.equal((await stats(page)).engine, 'WebRTC');
    assert.equal(asked, 3);
  });

  test('a page whose connection fails goes over to LL-HLS, and says so', async () => {
    const { page } = await openPage(browser, SMALL);
    // All addresses of the server lead to a port where nobody is.
    await page.route('**/whep', async (route) => {
      const response = await route.fetch(AGAIN);
      const body = (await response.text()).replace(/ \d+ typ host/g, ' 9 typ host');
      await route.fulfill({ response, body });
    });
    await putOff(page, CONNECT, true);
    await page.goto(`${server.url}/watch/live/demo?via=webrtc`);
    await page.getByText('This page went over to LL-HLS.').waitFor();
    await untilCondition(page, 'playing');
    assert.match((await stats(page)).engine, /^hls\.js/);
    // A choice of the viewer is tried anew.
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.evaluate(() => {
      window.putOff = true;
    });
    await page.getByRole('radio', { name: 'WebRTC' }).check();
    await page.waitForFunction(() => window.headwater.stats().engine === 'WebRTC');
    await untilCondition(page, 'playing');
    assert.equal(await page.getByText('This page went over to').count(), 0);
  });
});
