#!/usr/bin/env node
// Measures the time from a picture's capture in one page of Chromium to the screen of another, by WHIP and
// WHEP over loopback. Needs HEADWATER_BIN and Chromium; run `npm ci` in web/ first.
//
//   scripts/bench-webrtc-screen.mjs [SECONDS] [FILE]
//
// A page is the camera: 30 times a second it draws the time into a canvas, as the bars that web/bench/screen.mjs
// reads, and publishes the canvas (H.264, 640×360). That program opens the player's page in another browser, and
// compares the time in each picture with the time at which the browser means to show it. So the figures include
// encoder, network, origin, jitter buffer and decoder, all by the clock of this machine. The raw figures go to FILE.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { FLAGS, HEADLESS, openPage, startServer, untilLive } from '../web/e2e/support.mjs';
import { chromium } from '../web/node_modules/playwright-core/index.mjs';

const seconds = process.argv[2] ?? '20';
const server = await startServer({ config: '' });
const browser = await chromium.launch({
  executablePath: HEADLESS,
  args: [...FLAGS, '--allow-loopback-in-peer-connection'],
});

/** In the page: draws, and publishes. */
async function publish(url) {
  const [bits, bar] = [20, 16];
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [640, 360];
  const context = canvas.getContext('2d');
  const fill = (style, ...box) => {
    context.fillStyle = style;
    context.fillRect(...box);
  };
  const draw = () => {
    const time = Math.round(performance.timeOrigin + performance.now()) % 2 ** bits;
    // Something that moves, so that pictures have a usual size.
    for (let x = 0; x < 640; x += 20) fill(`hsl(${(time / 10 + x) % 360} 80% 50%)`, x, 40, 20, 320);
    for (let bit = 0; bit < bits; bit += 1) {
      const isSet = (time >> (bits - 1 - bit)) & 1;
      fill(isSet ? '#fff' : '#000', bit * bar, 0, bar, bar);
      fill(isSet ? '#000' : '#fff', bit * bar, bar, bar, bar);
    }
  };
  draw();
  setInterval(draw, 1000 / 30);
  const media = canvas.captureStream(30);
  const peer = new RTCPeerConnection();
  window.peer = peer;
  const transceiver = peer.addTransceiver(media.getTracks()[0], { direction: 'sendonly', streams: [media] });
  const { codecs } = RTCRtpSender.getCapabilities('video');
  transceiver.setCodecPreferences(codecs.filter(({ mimeType }) => /H264|rtx/i.test(mimeType)));
  await peer.setLocalDescription();
  const headers = { 'content-type': 'application/sdp' };
  const answer = await fetch(url, { method: 'POST', headers, body: peer.localDescription.sdp });
  await peer.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
}

try {
  const { page } = await openPage(browser);
  await page.goto(`${server.url}/`);
  await page.evaluate(publish, `${server.url}/live/screen/whip`);
  await untilLive(server.url, 'live/screen');
  const program = new URL('../web/bench/screen.mjs', import.meta.url).pathname;
  const words = [program, `${server.url}/watch/live/screen?via=webrtc`, seconds];
  const read = JSON.parse(execFileSync('node', words, { encoding: 'utf8' }));
  if (process.argv[3]) writeFileSync(process.argv[3], `${JSON.stringify(read)}\n`);
  // The bars count to 2^20, and the display is expected in whole milliseconds: -1 ms would be nearly 2^20.
  const late = read.pictures.map(({ late }) => (late > 2 ** 19 ? late - 2 ** 20 : late)).sort((a, b) => a - b);
  const at = (share) => late[Math.floor(share * (late.length - 1))].toFixed(0);
  console.log(
    `via ${read.stats.via}  pictures ${late.length}, unreadable ${read.unreadable}  ` +
      `median ${at(0.5)} ms  p90 ${at(0.9)} ms  p99 ${at(0.99)} ms  most ${at(1)} ms`,
  );
} finally {
  await browser.close();
  await server.stop();
}
