import { spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { untilLive } from './support.mjs';

const RATE = 30;
/** Seconds in a frame of AAC. */
const AAC = 1024 / 44_100;
const ENCODERS = {
  h264: '-c:v libx264 -preset ultrafast -tune zerolatency -sc_threshold 0',
  av1: '-c:v libsvtav1 -preset 12 -svtav1-params pred-struct=1',
};

/**
 * Clips of one test pattern, `seconds` long, with a keyframe each second at the same times: `high`
 * and `low` in H.264, and `av1` in AV1. Encoding AV1 takes long, so that clip is half as long. The sound of each is no
 * longer than its pictures: those that are repeated keep the same times.
 */
export async function makeRenditions(seconds) {
  const root = await mkdtemp(join(tmpdir(), 'headwater-renditions-'));
  for (const [name, size, bitrate, codec] of [
    ['high', '640x360', '800k', 'h264'],
    ['low', '320x180', '200k', 'h264'],
    ['av1', '320x180', '200k', 'av1'],
  ]) {
    const length = codec === 'av1' ? seconds / 2 : seconds;
    const sound = Math.floor(length / AAC) * AAC;
    const words = [
      '-v error -y -f lavfi -i',
      `testsrc2=size=${size}:rate=${RATE}:duration=${length}`,
      `-f lavfi -i sine=frequency=440:duration=${sound}`,
      `${ENCODERS[codec]} -g ${RATE} -b:v ${bitrate} -pix_fmt yuv420p -c:a aac -b:a 64k`,
      join(root, `${name}.mp4`),
    ];
    const { status, stderr } = spawnSync('ffmpeg', words.join(' ').split(' '), {
      encoding: 'utf8',
      timeout: 60_000,
      env: { ...process.env, SVT_LOG: '1' },
    });
    if (status !== 0) throw new Error(`ffmpeg ${words.join(' ')}: ${stderr}`);
  }
  return { root, remove: () => rm(root, { recursive: true }) };
}

/**
 * Publishes each of these clips with a publisher of its own, as renditions of `stream`, again and again: a busy machine
 * takes longer than a clip lasts.
 */
export function publish(server, stream, clips) {
  const words = clips.map(([rendition, path]) => [
    'publish',
    path,
    `${server.rtmp}/${stream}?rendition=${rendition}`,
    '--loop',
  ]);
  return publishBy(process.env.HEADWATER_BIN, words, server, stream, clips.length);
}

/**
 * Publishes these clips with one program, like an encoder that makes several renditions, again and again. H.264
 * only.
 */
export function publishTogether(server, stream, clips) {
  const inputs = clips.flatMap(([, path]) => '-re -stream_loop -1 -i'.split(' ').concat(path));
  const outputs = clips.flatMap(([rendition], i) => [
    ...`-map ${i}:v -map 0:a -c copy -f flv`.split(' '),
    `${server.rtmp}/${stream}?rendition=${rendition}`,
  ]);
  const words = ['-nostdin', '-v', 'fatal', ...inputs, ...outputs];
  return publishBy('ffmpeg', [words], server, stream, clips.length);
}

/** Waits until the stream has all renditions. Returns a function that stops the publishers. */
async function publishBy(program, commands, server, stream, count) {
  const publishers = commands.map((words) =>
    spawn(program, words, { stdio: ['ignore', 'ignore', 'inherit'] }),
  );
  const pictures = ({ tracks }) => tracks.filter(({ kind, bitrate }) => kind === 'video' && bitrate > 0);
  await untilLive(server.url, stream, (live) => pictures(live).length === count);
  return () => {
    for (const publisher of publishers) publisher.kill('SIGKILL');
  };
}
