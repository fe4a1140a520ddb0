// What a browser receives and sends to get a film, by push or by pull, as its DevTools protocol tells it.
//
//   node bench/overhead.mjs PAGE push ws://HOST/vod/FILM/push?pace=fast&latency=segment
//   node bench/overhead.mjs PAGE pull http://HOST/vod/FILM/index.m3u8
//
// One JSON document on standard output. Segments are asked for one after the other, as a player does whose
// buffer is full; the page, PAGE, is on another origin than the film, so that nothing of it is counted.
import { startBrowser, within } from '../e2e/support.mjs';

const [origin, kind, url] = process.argv.slice(2);
const LIMIT = 120_000;

/** In the page: everything that a playlist leads to. */
async function pull(index) {
  const text = async (address) => {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(`${answer.status} ${address}`);
    return answer.text();
  };
  const names = (playlist) =>
    playlist.split('\n').flatMap((line) => {
      const map = /^#EXT-X-MAP:.*URI="([^"]+)"/.exec(line);
      if (map) return [map[1]];
      return line === '' || line.startsWith('#') ? [] : [line];
    });
  const [variant] = names(await text(index));
  const media = new URL(variant, index);
  let bytes = 0;
  const wanted = [...new Set(names(await text(media)))];
  for (const name of wanted) {
    const answer = await fetch(new URL(name, media));
    if (!answer.ok) throw new Error(`${answer.status} ${name}`);
    bytes += (await answer.arrayBuffer()).byteLength;
  }
  return { chunks: wanted.length - 1, media: bytes };
}

/** In the page: every message until the end. The first binary one is the header. */
function push(address) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(address, 'headwater.v1');
    socket.binaryType = 'arraybuffer';
    let [messages, bytes] = [0, 0];
    socket.onmessage = ({ data }) => {
      if (typeof data === 'string') return;
      messages += 1;
      bytes += data.byteLength;
    };
    socket.onclose = ({ code, reason }) => {
      if (code === 1000) resolve({ chunks: messages - 1, media: bytes });
      else reject(new Error(`closed with ${code} ${reason}`));
    };
  });
}

const browser = await startBrowser();
try {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  await page.goto(origin);
  const devtools = await context.newCDPSession(page);
  const seen = { finished: 0, heads: 0, requests: 0, protocols: {}, frames: 0, payload: 0, upgrade: 0 };
  devtools.on('Network.loadingFinished', ({ encodedDataLength }) => {
    seen.finished += encodedDataLength;
  });
  devtools.on('Network.responseReceived', ({ response }) => {
    seen.requests += 1;
    seen.heads += response.encodedDataLength;
    seen.protocols[response.protocol] = (seen.protocols[response.protocol] ?? 0) + 1;
  });
  devtools.on('Network.webSocketHandshakeResponseReceived', ({ response }) => {
    seen.upgrade = (response.headersText?.length ?? 0) + (response.requestHeadersText?.length ?? 0);
  });
  devtools.on('Network.webSocketFrameReceived', ({ response }) => {
    seen.frames += 1;
    // Of a binary message DevTools has the base64.
    const { opcode, payloadData } = response;
    seen.payload += opcode === 2 ? Buffer.from(payloadData, 'base64').length : Buffer.byteLength(payloadData);
  });
  await devtools.send('Network.enable');
  const got = await within(LIMIT, page.evaluate(kind === 'push' ? push : pull, url), 'film');
  // What DevTools says of the last answer comes after the answer.
  await page.waitForTimeout(500);
  console.log(JSON.stringify({ kind, url, ...got, devtools: seen, version: browser.version() }));
} finally {
  await browser.close();
}
