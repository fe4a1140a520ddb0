#!/bin/sh
# Makes the media that the tests read, in target/media. Usage: scripts/make-media.sh [--list]
#
# All content comes from ffmpeg's own sources, so nobody else holds rights to it, and a clone needs
# nothing else. A file is made again only if its recipe or ffmpeg has changed. Files appear complete
# or not at all. If another process is making them, this one waits.
#
# Pictures are small and noisy: small, so that encoding and decoding is fast; noisy, so that files
# have realistic sizes and no two access units are equal.
#
# Needs ffmpeg with libx264, libx265, libaom, libvpx, libopus and libmp3lame (Debian's has them).
set -eu
cd "$(dirname "$0")/.."

media=target/media
# Describes each file and its purpose. There is one row for each recipe below.
table='
# name                    what it is                                        what tests need it for
mp4/film.mp4              10 s, 640x360, 30/s, a keyframe a second, no      the common case; 3 MB, which is more
                          B-frames; stereo, 10 ms late; index first         than sockets hold
mp4/minute.mp4            the same, 60.1 s, 480x270, 15 MB                  seeking, ranges, pacing, real time
mp4/two-minutes.mp4       the same, 120.2 s, 426x240, 9 MB                  long; samples that are copied, not sent
                                                                            from the file
mp4/surround.mp4          30 s, 24/s, B-frames, few keyframes, 5.1; index   layouts as x264 and ffmpeg leave them by
                          last; the edit list hides the priming of sound    default
mp4/surround-60.mp4       2 s, 60/s, B-frames, one keyframe, 5.1; index     one segment; another film in the place
                          last                                              of one
mp4/late-index.mp4        52.2 s, 24/s (timescale 24), B-frames, keyframes  decode times in front of presentation
                          1.5 to 10 s apart; stereo; index last             times; irregular segments
mp4/quicktime.mov         30 s, 30/s, B-frames, keyframes 8.3 s apart; MOV  QuickTime files
mp4/short.mp4             1 s, 29.97/s, B-frames; mono 44.1 kHz             a small title
mp4/pictures.mp4          4 s, 30/s, B-frames that refer to B-frames        no sound
mp4/pictures-10s.mp4      10 s, 100x100, B-frames, no edit list             no sound, times that begin late
mp4/pictures-ntsc.mp4     1 s, 29.97/s                                      no sound, an odd rate
mp4/intra.mp4             1 s, every picture a keyframe: no stss            sync samples by default
mp4/ten-bits.mp4          1 s, H.264 High 10                                profiles beyond 8 bits
mp4/vfr.mp4               8 s, pictures 10 to 400 ms apart; no edit list    variable frame rate
mp4/timecode.mov          2 s, with a tmcd track                            tracks that are left out
mp4/sound.mp4             1 s, mono, 16 kHz                                 no pictures
mp4/two-sounds.mp4        3 s, AAC 5.1 twice                                no pictures, several sounds
mp4/late-sound.mp4        3 s, the sound begins 0.5 s late                  edit lists with an empty edit
mp4/late-pictures.mp4     3 s, the pictures begin 0.3 s late; B-frames      the same, of the other track
mp4/shorter-sound.mp4     3 s, the sound ends after 2 s                     tracks of unlike length
mp4/late.mp4              4 s, all of it 10 s late                          edit lists with a long empty edit
mp4/trimmed.mp4           3 s, B-frames; the edit list hides 1 s of both    edit lists that begin within the media
mp4/tracks.mp4            12 s, two videos, two sounds, two subtitles        tracks of every kind, twice
mp4/rungs.mp4             60 s, 24/s, a keyframe a second, three videos of  renditions, published without encoding
                          120, 700 and 2200 kbit/s, no B-frames; mono
mp4/hevc.mp4              2 s, 640x360, B-frames                            HEVC
mp4/hevc-aac.mp4          2 s, HEVC without B-frames, and stereo            HEVC with sound
mp4/hevc-10s.mp4          10 s, 100x100, B-frames, no edit list             HEVC, longer
mp4/av1.mp4               1 s, 320x240, 10 bits                             AV1
mp4/av1-aac.mp4           2 s, AV1 and stereo                               AV1 with sound
mp4/opus.mp4              5 s, stereo                                       Opus
mp4/opus-trimmed.mp4      3 s, of which the edit list hides 0.72 s          Opus, and samples that are left out
mp4/fragmented.mp4        15.6 s, 60/s, B-frames, fragments of 0.9 s        fragmented files
mp4/fragmented-hevc.mp4   2 s, HEVC and stereo, two fragments               the same, HEVC
mp4/fragmented-opus.mp4   3 s, fragments of half a second                   the same, Opus
mp4/fragmented-aac.mp4    5 s, fragments with sidx boxes                    the same, sound alone
mp4/fragmented-late.mp4   4 s, its first tfdt is 1000 s                     pieces of something longer
mp4/mp3.mp4               3 s, H.264 and MP3                                a track in a codec CMAF has not
mp4/pcm.mov               1 s, H.264 and big-endian PCM                     the same; samples of a few bytes
mp4/ac3.mp4               0.3 s, AC-3                                       files that are refused
mp4/eac3.mp4              0.3 s, E-AC-3                                     the same
mp4/alac.mp4              0.3 s, Apple Lossless                             the same
mp4/vp9.mp4               0.5 s, VP9                                        the same
mp4/encrypted.mp4         1 s, cenc                                         the same
flv/legacy.flv            10 s, 320x180, 25/s, Constrained Baseline; mono,  what most encoders publish
                          44.1 kHz
flv/b-frames.flv          1 s, 60/s, B-frames; stereo                       composition times
flv/vfr.flv               3 s, pictures 10 to 400 ms apart; mono            variable frame rate
flv/sound.flv             12 s, AAC alone                                   no pictures
long/primary.flv          150 s, 160x90, 25/s, a keyframe a second; mono    publishers that outlast a test
long/backup.flv           the same, other pictures                          a second publisher of one stream
'

[ "${1:-}" != --list ] || { printf '%s' "$table"; exit; }
command -v ffmpeg >/dev/null || { echo "$0: ffmpeg is missing" >&2; exit 1; }

mkdir -p "$media/mp4" "$media/flv" "$media/long" "$media/recipes"
# One process at a time makes files; others wait and find them made.
exec 9>"$media/recipes/lock"
flock 9

version=$(ffmpeg -version | head -n 1)
work=$(mktemp -d "$media/recipes/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# --- How a file is made ---------------------------------------------------------------------------

# recipe_of NAME: prints the name of the file that holds NAME's recipe.
recipe_of() { echo "$(echo "$1" | tr / .).recipe"; }

# make NAME ARGUMENT…: makes a file with ffmpeg and these arguments, in the background. `together`
# waits for all such files. A recipe may read only files that it has waited for.
made=
running=
make() {
    made="$made $1"
    recipe="$version: $*"
    [ "$(cat "$media/recipes/$(recipe_of "$1")" 2>/dev/null)" != "$recipe" ] ||
        [ ! -f "$media/$1" ] || return 0
    produce "$recipe" "$@" &
    running="$running $!"
    # As many at once as there are processors, each with one thread.
    # shellcheck disable=SC2086
    set -- $running
    [ $# -lt "$jobs" ] || {
        wait "$1" || exit 1
        shift
        running=$*
    }
}

jobs=$(nproc)

produce() {
    produce_recipe=$1 produce_name=$2
    shift 2
    produce_file=$work/$(echo "$produce_name" | tr / .)
    ffmpeg -nostdin -hide_banner -loglevel error -y -bitexact "$@" "$produce_file" || {
        echo "$0: $produce_name: ffmpeg failed" >&2
        return 1
    }
    mv "$produce_file" "$media/$produce_name"
    printf '%s\n' "$produce_recipe" >"$produce_file"
    mv "$produce_file" "$media/recipes/$(recipe_of "$produce_name")"
    echo "made $media/$produce_name"
}

together() {
    for each in $running; do
        wait "$each" || exit 1
    done
    running=
}

# The inputs: pictures SIZE RATE SECONDS, and sound RATE SECONDS. Neither repeats itself.
pictures() { echo "-f lavfi -i testsrc2=s=$1:r=$2:d=$3,noise=alls=${4:-4}:allf=t:all_seed=7"; }
sound() { echo "-f lavfi -i anoisesrc=r=$1:d=$2:a=0.3:c=pink:seed=7"; }

# x264 at a bit rate, with a keyframe every given number of pictures and no others. All have one
# level, so that profile and level in codec strings are those of these lines.
avc="-c:v libx264 -preset ultrafast -threads 1 -pix_fmt yuv420p -level:v 3.1"
plain="$avc -profile:v main -coder 1 -bf 0"
b_frames="$avc -profile:v high -bf 3 -x264-params cabac=1:8x8dct=1:b-pyramid=normal:b-adapt=0:ref=3"
x265="-c:v libx265 -preset ultrafast -pix_fmt yuv420p -tag:v hvc1"
x265="$x265 -x265-params log-level=error:pools=none:frame-threads=1"
hevc="$x265:bframes=3:level-idc=3.1"
av1="-c:v libaom-av1 -usage realtime -cpu-used 8 -threads 1"
rate() { echo "-b:v $1 -maxrate $1 -bufsize $1"; }
keys() { echo "-g $1 -keyint_min $1 -sc_threshold 0"; }
stereo="-c:a aac -ac 2 -b:a 192k"
mono="-c:a aac -ac 1 -b:a 64k"
surround="-c:a aac -ac 6 -b:a 192k"
fast="-movflags +faststart"
ninety="-video_track_timescale 90000"
fragments="-use_editlist 0 -movflags +frag_keyframe+empty_moov+default_base_moof"

# --- The recipes ----------------------------------------------------------------------------------

# shellcheck disable=SC2046,SC2086 # Arguments have no spaces of their own.
recipes() {
    # Audio without priming: an encoder starts from silence, which ADTS does not record.
    make sound.aac $(sound 48000 121) $stereo -f adts
    make mp4/surround.mp4 $(pictures 320x180 24 30 20) $(sound 48000 30) $b_frames $(rate 900k) $surround
    make mp4/surround-60.mp4 $(pictures 640x360 60 2 20) $(sound 48000 2) $b_frames $(rate 4700k) $surround
    make mp4/late-index.mp4 $(pictures 320x180 24 52.2 20) $(sound 48000 52) $b_frames $(rate 900k) \
        -force_key_frames 0,9.5,14,24,25.5,27,32,42 -video_track_timescale 24 $stereo
    make mp4/quicktime.mov $(pictures 320x180 30 30) $(sound 48000 30.5) $b_frames $(keys 250) \
        $(rate 230k) $stereo
    make mp4/short.mp4 $(pictures 320x180 30000/1001 1) $(sound 44100 1) $b_frames $mono
    make mp4/pictures.mp4 $(pictures 320x240 30 4) $b_frames $(rate 800k)
    make mp4/pictures-10s.mp4 $(pictures 100x100 30 10) $b_frames -use_editlist 0
    make mp4/pictures-ntsc.mp4 $(pictures 320x180 30000/1001 1) $b_frames
    make mp4/intra.mp4 $(pictures 320x180 30 1) $plain -g 1 $fast
    make mp4/ten-bits.mp4 $(pictures 200x200 30 1) $avc -profile:v high10 \
        -pix_fmt yuv420p10le
    make mp4/vfr.mp4 $(pictures 320x180 30 2),$uneven $plain $(keys 16) -fps_mode passthrough \
        -video_track_timescale 57600 -use_editlist 0 $fast
    make mp4/timecode.mov $(pictures 100x100 30 2) $b_frames -timecode 01:00:00:00
    make mp4/sound.mp4 $(sound 16000 1) $mono
    make mp4/two-sounds.mp4 $(sound 48000 3) $(sound 44100 3) -map 0 -map 1 $surround $fast
    make mp4/late-sound.mp4 $(pictures 320x180 30 3) -itsoffset 0.5 $(sound 48000 2.5) $plain $stereo $fast
    make mp4/late-pictures.mp4 -itsoffset 0.3 $(pictures 320x180 30 3) $(sound 48000 3) $b_frames $mono \
        -fps_mode passthrough
    make mp4/shorter-sound.mp4 $(pictures 320x240 60 3) $(sound 44100 2) $plain $mono
    make mp4/late.mp4 -itsoffset 10 $(pictures 320x240 30 4) $b_frames -fps_mode passthrough $fast
    make mp4/trimmed.mp4 $(pictures 320x180 25 4) $(sound 48000 4) $b_frames $(keys 25) $stereo \
        -output_ts_offset -1 -avoid_negative_ts disabled
    make mp4/rungs.mp4 $(pictures 160x120 24 60 12) $(pictures 320x240 24 60 12) \
        $(pictures 480x360 24 60 12) $(sound 48000 60) -map 0 -map 1 -map 2 -map 3 $plain $(keys 24) \
        -b:v:0 120k -maxrate:v:0 120k -bufsize:v:0 120k -b:v:1 700k -maxrate:v:1 700k -bufsize:v:1 700k \
        -b:v:2 2200k -maxrate:v:2 2200k -bufsize:v:2 2200k $mono $fast
    make mp4/hevc.mp4 $(pictures 640x360 30 2) $hevc -b:v 2000k
    make mp4/hevc-aac.mp4 $(pictures 320x180 30 2) $(sound 48000 2) $x265:bframes=0:info=0:level-idc=3.1 $(keys 30) $stereo
    make mp4/hevc-10s.mp4 $(pictures 100x100 30 10) $hevc -use_editlist 0
    make mp4/av1.mp4 $(pictures 320x240 25 1) $av1 -pix_fmt yuv420p10le
    make mp4/av1-aac.mp4 $(pictures 320x180 30 2) $(sound 48000 2) $av1 -g 30 $stereo
    make mp4/opus.mp4 $(sound 48000 5) -c:a libopus -ac 2 -b:a 96k
    make mp4/opus-trimmed.mp4 $(sound 48000 3) -c:a libopus -ac 2 -b:a 24k -output_ts_offset -0.72 \
        -avoid_negative_ts disabled
    make mp4/fragmented.mp4 $(pictures 320x240 60 15.5) $(sound 48000 15.5) $b_frames $(keys 52) \
        $(rate 500k) $stereo $fragments
    make mp4/fragmented-hevc.mp4 $(pictures 320x180 30 2) $(sound 48000 2) $hevc $(keys 30) $stereo $fragments
    make mp4/fragmented-opus.mp4 $(sound 48000 3) -c:a libopus -ac 2 -frag_duration 500000 $fragments
    make mp4/fragmented-aac.mp4 $(sound 48000 5) $stereo -frag_duration 2000000 $fragments+dash
    make mp4/fragmented-late.mp4 $(pictures 320x180 30 4) $(sound 48000 4) $b_frames $(keys 60) $stereo \
        -output_ts_offset 1000 $fragments+frag_discont -avoid_negative_ts disabled
    make mp4/mp3.mp4 $(pictures 320x180 25 3) $(sound 44100 3) $b_frames -c:a libmp3lame
    make mp4/pcm.mov $(pictures 320x180 30000/1001 1) $(sound 44100 1) $b_frames -c:a pcm_s16be
    make mp4/ac3.mp4 $(sound 48000 0.3) -c:a ac3 -ac 6
    make mp4/eac3.mp4 $(sound 48000 0.3) -c:a eac3 -ac 6
    make mp4/alac.mp4 $(sound 44100 0.3) -c:a alac
    make mp4/vp9.mp4 $(pictures 320x240 30 0.5) -c:v libvpx-vp9 -deadline realtime -cpu-used 8 \
        -pix_fmt yuv420p
    key=00112233445566778899aabbccddeeff
    make mp4/encrypted.mp4 $(pictures 320x180 30 1) $plain -encryption_scheme cenc-aes-ctr \
        -encryption_key $key -encryption_kid $key
    baseline="$avc -profile:v baseline"
    make flv/legacy.flv $(pictures 320x180 25 10) $(sound 44100 10) $baseline $(keys 73) $(rate 300k) $mono
    make flv/b-frames.flv $(pictures 320x180 60 1) $(sound 48000 1) $b_frames $stereo
    make flv/vfr.flv $(pictures 320x180 30 1),$uneven $(sound 44100 3) $b_frames -fps_mode passthrough $mono
    make flv/sound.flv $(sound 44100 12) $stereo
    make long/primary.flv $(pictures 160x90 25 150) $(sound 48000 150) $plain $(keys 25) $(rate 200k) $mono
    make long/backup.flv $(pictures 160x90 25 150),negate $(sound 48000 150) $plain $(keys 25) $(rate 200k) $mono
    together

    # Files made from this audio are made again when it changes.
    version="$version $(cat "$media/recipes/$(recipe_of sound.aac)")"
    music="-itsoffset 0.01 -i $media/sound.aac"
    make mp4/film.mp4 $(pictures 640x360 30 10 20) $music -t 10 $plain $(keys 30) $(rate 2270k) -c:a copy \
        $ninety $fast
    make mp4/minute.mp4 $(pictures 480x270 30 60.133 20) $music -t 60.133 $plain $(keys 30) $(rate 1865k) \
        -c:a copy $ninety $fast
    make mp4/two-minutes.mp4 $(pictures 426x240 30 120.166) -i $media/sound.aac -t 120.166 $plain $(keys 30) \
        $(rate 410k) -c:a copy $ninety $fast
    make mp4/tracks.mp4 $(pictures 320x180 25 12) $(sound 8000 12) -i "$media/recipes/one.srt" \
        $(pictures 240x136 30000/1001 12) $(sound 16000 12) -i "$media/recipes/two.srt" \
        -map 0 -map 1 -map 2 -map 3 -map 4 -map 5 $b_frames $(keys 50) $mono -c:s mov_text \
        -disposition:v default
    together
}

# Pictures with a duration of 1/30 s, 10 ms to 0.4 s apart.
uneven="setpts=(N*4+mod(N*N*7\,11))/30/TB"
caption() { printf '1\n00:00:00,500 --> 00:00:01,500\n%s\n\n2\n00:00:02,000 --> 00:00:11,900\n%s\n' "$1" "$2"; }
caption One Two >"$media/recipes/one.srt"
caption Eins Zwei >"$media/recipes/two.srt"

recipes

# Removes files that no recipe makes any more.
for file in "$media"/mp4/* "$media"/flv/* "$media"/long/*; do
    name=${file#"$media"/}
    case " $made " in *" $name "*) ;; *) rm -f "$file" "$media/recipes/$(recipe_of "$name")" ;; esac
done
