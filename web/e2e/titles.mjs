import { spawnSync } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

// Made by scripts/make-media.sh.
const MEDIA = fileURLToPath(new URL('../../target/media', import.meta.url));

const SUBTITLES = `WEBVTT

00:00:00.500 --> 00:00:20.000
A subtitle of the test.

00:00:20.000 --> 00:02:00.000
Another subtitle of the test.
`;

/**
 * A folder of titles: `first.mp4`, two minutes, index in front, with subtitles beside it;
 * `last.mp4`, 52 s, index at the end; `fragmented.mp4`, 15.6 s; `languages.mp4`, a minute, two audio
 * tracks; `folder`, a minute, two renditions; `codecs`, 20 s, of whose three renditions only `middle` is in a codec that
 * Chromium decodes; `edited.mp4`, which is green, except for a red first second
 * that its edit list skips; and files that cannot be played: `cut.mp4` (without an index),
 * `short.mp4` (media missing), `hevc.mp4`, `text.mp4`.
 */
export async function makeTitles() {
  const root = await mkdtemp(join(tmpdir(), 'headwater-titles-'));
  const media = (name) => join(MEDIA, name);
  const at = (name) => join(root, name);
  const long = media('mp4/two-minutes.mp4');
  const last = media('mp4/late-index.mp4');
  await mkdir(at('folder'));
  await Promise.all([
    copyFile(long, at('first.mp4')),
    writeFile(at('first.en.vtt'), SUBTITLES),
    copyFile(last, at('last.mp4')),
    copyFile(media('mp4/fragmented.mp4'), at('fragmented.mp4')),
    copyFile(media('mp4/hevc.mp4'), at('hevc.mp4')),
    writeFile(at('text.mp4'), 'This is no film.\n'.repeat(100)),
    readFile(last).then((bytes) => writeFile(at('cut.mp4'), bytes.subarray(0, 2_000_000))),
    readFile(long).then((bytes) => writeFile(at('short.mp4'), bytes.subarray(0, 700_000))),
  ]);
  ffmpeg('-i', long, '-t', '60', '-c', 'copy', at('folder/high.mp4'));
  ffmpeg(
    '-i',
    at('folder/high.mp4'),
    ...'-vf scale=212:120 -c:v libx264 -b:v 150k -g 30 -bf 0'.split(' '),
    ...'-preset ultrafast -sc_threshold 0 -c:a copy'.split(' '),
    at('folder/low.mp4'),
  );
  await mkdir(at('codecs'));
  for (const [name, encoder] of [
    [
      'low',
      '-c:v libx265 -b:v 50k -x265-params keyint=50:min-keyint=50:scenecut=0:open-gop=0:log-level=none',
    ],
    ['middle', '-c:v libx264 -b:v 200k -g 50 -sc_threshold 0'],
    [
      'high',
      '-c:v libx265 -b:v 500k -x265-params keyint=50:min-keyint=50:scenecut=0:open-gop=0:log-level=none',
    ],
  ]) {
    ffmpeg(
      ...'-f lavfi -i testsrc2=s=160x90:r=25:d=20 -f lavfi -i sine -t 20'.split(' '),
      ...`${encoder} -preset ultrafast -bf 0 -pix_fmt yuv420p -c:a aac`.split(' '),
      at(`codecs/${name}.mp4`),
    );
  }
  ffmpeg(
    '-i',
    at('folder/high.mp4'),
    ...'-f lavfi -i sine=frequency=440'.split(' '),
    ...'-t 60 -map 0:v -map 0:a -map 1:a -c:v copy -c:a aac'.split(' '),
    ...'-metadata:s:a:0 language=eng -metadata:s:a:1 language=deu'.split(' '),
    at('languages.mp4'),
  );
  ffmpeg(
    ...'-f lavfi -i color=red:s=320x180:r=25:d=12,drawbox=color=green:t=fill:enable=gte(t\\,5)'.split(' '),
    ...'-f lavfi -i sine=frequency=440:duration=12'.split(' '),
    ...'-c:v libx264 -pix_fmt yuv420p -bf 2 -g 100 -sc_threshold 0 -c:a aac'.split(' '),
    at('unedited.mp4'),
  );
  // Video from the keyframe before 5 s on, and audio from 5 s on.
  ffmpeg('-ss', '5', '-i', at('unedited.mp4'), '-c', 'copy', at('edited.mp4'));
  return { root, remove: () => rm(root, { recursive: true }) };
}

function ffmpeg(...args) {
  const { status, stderr } = spawnSync('ffmpeg', ['-v', 'error', '-y', ...args], {
    encoding: 'utf8',
    timeout: 60_000,
  });
  if (status !== 0) throw new Error(`ffmpeg ${args.join(' ')}: ${stderr}`);
}
