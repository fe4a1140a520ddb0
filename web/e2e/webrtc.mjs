import { setTimeout } from 'node:timers/promises';
import { chromium } from 'playwright-core';
import { FLAGS, HEADLESS, openPage, SMALL, untilEnough } from './support.mjs';

/** A browser whose camera shows a test picture. */
const CAMERA = ['--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream'];
/** Without this, a machine without a network has no candidates. */
const LOOPBACK = ['--allow-loopback-in-peer-connection'];

/** Starts a browser that has a camera. */
export function startCamera() {
  return chromium.launch({ executablePath: HEADLESS, args: [...FLAGS, ...CAMERA, ...LOOPBACK] });
}

/** Closes all pages. Pages of one browser share its camera, and so its size. */
export async function closePages(browser, { passed }) {
  for (const context of browser.contexts()) {
    for (const page of passed ? [] : context.pages())
      console.error(`${page.url()} shows: ${await shown(page)}`);
    await context.close();
  }
}

/** What a page shows, in words. A page whose scripts stand still does not answer. */
async function shown(page) {
  const text = page.evaluate(() => document.body.innerText.replaceAll(/\s+/g, ' '));
  return Promise.race([text, setTimeout(5_000, 'no answer')]).catch((error) => `${error}`);
}

/** Sends a page's offer, and takes the answer. Returns the session's URL. */
async function agree(peer, url) {
  await peer.setLocalDescription();
  const headers = { 'content-type': 'application/sdp' };
  const answer = await fetch(url, { method: 'POST', headers, body: peer.localDescription.sdp });
  if (answer.status !== 201) throw new Error(`${answer.status}: ${await answer.text()}`);
  await peer.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
  return new URL(answer.headers.get('location'), url).href;
}

/** Opens a page of the server, whose camera only works in a secure context such as 127.0.0.1. */
export async function open(browser, server) {
  const { page } = await openPage(browser, SMALL);
  await page.addInitScript(`window.agree = ${agree}`);
  await page.goto(`${server.url}/`);
  return page;
}

/** Publishes the camera and a tone by WHIP, as any page can. Returns the session's URL. */
export function publish(page, url, { codec = 'H264', width = 320, sendEncodings } = {}) {
  return page.evaluate(
    async ([url, codec, width, sendEncodings]) => {
      const media = await navigator.mediaDevices.getUserMedia({
        video: { width, height: (width * 3) / 4, frameRate: 30 },
      });
      // Without a sound card, the microphone is silent.
      const context = new AudioContext();
      const tone = new OscillatorNode(context);
      const sound = new MediaStreamAudioDestinationNode(context);
      tone.connect(sound);
      tone.start();
      media.addTrack(sound.stream.getAudioTracks()[0]);
      const peer = new RTCPeerConnection();
      window.peer = peer;
      for (const track of media.getTracks()) {
        const encodings = track.kind === 'video' && sendEncodings ? { sendEncodings } : {};
        const options = { direction: 'sendonly', streams: [media], ...encodings };
        const transceiver = peer.addTransceiver(track, options);
        if (track.kind === 'audio') continue;
        const { codecs } = RTCRtpSender.getCapabilities('video');
        transceiver.setCodecPreferences(codecs.filter(({ mimeType }) => mimeType === `video/${codec}`));
        // On a busy machine Chromium would otherwise send smaller pictures.
        const { sender } = transceiver;
        await sender.setParameters({
          ...sender.getParameters(),
          degradationPreference: 'maintain-resolution',
        });
      }
      return await window.agree(peer, url);
    },
    [url, codec, width, sendEncodings],
  );
}

/** Plays by WHEP, in one of the codecs that these name. Returns the session's URL. */
export function play(page, url, names = ['H264', 'AV1', 'VP8']) {
  return page.evaluate(
    async ([url, names]) => {
      const peer = new RTCPeerConnection();
      window.peer = peer;
      const transceiver = peer.addTransceiver('video', { direction: 'recvonly' });
      const { codecs } = RTCRtpReceiver.getCapabilities('video');
      const wanted = names.flatMap((name) => codecs.filter(({ mimeType }) => mimeType === `video/${name}`));
      const resends = codecs.filter(({ mimeType }) => mimeType === 'video/rtx');
      transceiver.setCodecPreferences([...wanted, ...resends]);
      peer.addTransceiver('audio', { direction: 'recvonly' });
      const video = document.createElement('video');
      video.autoplay = true;
      document.body.append(video);
      const streams = new Set();
      peer.ontrack = ({ streams: [stream] }) => {
        streams.add(stream.id);
        video.srcObject = stream;
      };
      window.streams = streams;
      return await window.agree(peer, url);
    },
    [url, names],
  );
}

/**
 * Whether a viewer had a reason for each keyframe that it asked for: it began, packets were lost, or a machine that
 * stood still for seconds sent it nothing.
 */
export const asksWithReason = ({ pliCount, packetsLost, totalFreezesDuration }) =>
  pliCount <= 1 || packetsLost > 0 || totalFreezesDuration > 2;

/** What a page received of a kind of media, once it passes `enough`. */
export function received(page, kind, enough) {
  const read = () =>
    page.evaluate(async (kind) => {
      const all = await window.peer.getStats();
      const found = [...all.values()].find((one) => one.type === 'inbound-rtp' && one.kind === kind);
      return { ...found, codec: all.get(found?.codecId)?.mimeType };
    }, kind);
  return untilEnough(read, enough, `not enough ${kind} came`, 200);
}
