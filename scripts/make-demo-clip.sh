#!/bin/sh
# Makes crates/headwater/assets/demo.mp4, which `headwater serve --demo` publishes in a loop. All
# its content comes from ffmpeg's own sources, so nobody else holds rights to it.
#
# The clip has 16 s because tracks of 30 fps video and 48 kHz AAC end together only at multiples of
# 8 s: it has 480 pictures at 30 fps, 16 closed GOPs of 1 s, and 750 AAC frames of 1024 samples at
# 48 kHz. So a loop neither drifts nor leaves a gap.
#
# It shows a clock with milliseconds and the picture's number, for reading latency off the screen; a
# marker that moves by one of 30 places with each picture; and a bar that fills over the 16 s. A
# note starts every half second.
#
# Needs: ffmpeg with libx264 and drawtext, fonts-dejavu-core. Usage: scripts/make-demo-clip.sh [OUTPUT]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$root/crates/headwater/assets/demo.mp4}
font=/usr/share/fonts/truetype/dejavu/DejaVuSansMono-Bold.ttf
seconds=16
frames=480
aac_frames=750

for program in ffmpeg ffprobe; do
    command -v "$program" >/dev/null || { echo "$0: $program is missing" >&2; exit 1; }
done
[ -r "$font" ] || { echo "$0: $font is missing (Debian: fonts-dejavu-core)" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
ff() { ffmpeg -nostdin -hide_banner -loglevel error -y -fflags +bitexact "$@"; }

# All terms of the waves have a whole number of periods in the clip, so the last picture leads to
# the first. They are drawn small and enlarged, because the pattern is smooth anyway.
turn="2*PI*T/$seconds"
waves="color=black:size=320x180:rate=30,format=gbrp,geq="
waves="$waves""r='85+60*sin(X/47+$turn)*cos(Y/31-2*$turn)+20*sin((X+Y)/29+3*$turn)':"
waves="$waves""g='80+45*sin(X/61-$turn+1)+30*cos(Y/23+2*$turn)':"
waves="$waves""b='130+60*cos(X/53+Y/37+2*$turn)+40*sin(Y/41-$turn)'"
waves="$waves,scale=1280:720:flags=bicubic,format=yuv420p"

text="drawtext=fontfile=$font:fontcolor=white:box=1:boxcolor=black@0.55:boxborderw=18:x=(w-tw)/2"
filter="$waves[waves];
color=white:size=1280x12:rate=30[progress];
color=orange:size=36x36:rate=30[marker];
color=black@0.5:size=1280x60:rate=30,format=yuva420p[lane];
[waves][lane]overlay=0:560[a];
[a][marker]overlay=x='(W/30)*mod(n\,30)+3':y=572:eval=frame[b];
[b][progress]overlay=x='-W+W*(n+1)/$frames':y=708:eval=frame[c];
[c]$text:fontsize=120:y=190:text='%{pts\\:hms}',
$text:fontsize=44:y=380:text='frame %{eif\\:n\\:d\\:3}',
$text:fontsize=32:y=60:text='headwater demo',
trim=end_frame=$frames[v]"

# Frame-exact GOPs without B-frames: a decoder can show each picture as it arrives. One thread,
# because the number of threads changes the bits that x264 writes.
ff -filter_complex "$filter" -map '[v]' \
    -c:v libx264 -threads 1 -profile:v high -level:v 3.1 -preset slow -pix_fmt yuv420p \
    -x264-params "keyint=30:min-keyint=30:scenecut=0:open-gop=0:bframes=0:ref=2" \
    -crf 22 -maxrate 1100k -bufsize 1100k \
    -color_primaries bt709 -color_trc bt709 -colorspace bt709 -color_range tv \
    -flags:v +bitexact "$work/video.mp4"

# A pentatonic phrase of 32 notes, in semitones above A3. Each note starts and ends in silence.
pitch=0
i=0
for semitone in 0 7 12 16 12 7 4 7  -3 4 9 12 9 4 0 4  5 9 12 17 12 9 5 9  7 11 14 19 14 11 7 -1; do
    pitch="$pitch+eq(ld(0),$i)*$semitone"
    i=$((i + 1))
done
note="st(0,floor(mod(t,$seconds)*2));st(1,mod(t,0.5));st(2,220*pow(2,($pitch)/12))"
envelope="min(1,ld(1)*100)*exp(-5*ld(1))*min(1,(0.5-ld(1))*50)"
left="0.10*($envelope)*(sin(2*PI*ld(2)*ld(1))+0.25*sin(4*PI*ld(2)*ld(1)))"
right="0.10*($envelope)*(sin(2*PI*ld(2)*ld(1))+0.35*sin(2*PI*ld(2)*1.5*ld(1)))"

# An AAC encoder starts from silence, with a delay of one frame. So the phrase is encoded three
# times in a row, and the frames of the second are kept: they decode without priming, need no edit
# list, and the last leads to the first.
first=$((aac_frames + 1))
last=$((2 * aac_frames))
ff -f lavfi -i "aevalsrc='$note;$left|$note;$right':s=48000:c=stereo:d=$((3 * seconds))" \
    -c:a aac -b:a 96k -flags:a +bitexact "$work/three.aac"
ff -i "$work/three.aac" -c copy \
    -bsf:a "noise=drop=lt(n\,$first)+gt(n\,$last)" \
    -f adts "$work/phrase.aac"

ff -i "$work/video.mp4" -i "$work/phrase.aac" -map 0:v -map 1:a -c copy -map_metadata -1 \
    -movflags +faststart -use_editlist 0 -flags +bitexact "$work/demo.mp4"

# A wrong clip is worse than none: check it before replacing the old one.
check() { # check NAME EXPECTED ACTUAL
    [ "$2" = "$3" ] || { echo "$0: $1: expected $2, got $3" >&2; exit 1; }
}
entries() { ffprobe -v error -select_streams "$1" -show_entries "$2" -of csv=p=0 "$work/demo.mp4"; }
check "pictures" "$frames" "$(entries v:0 packet=pts | wc -l)"
check "AAC frames" "$aac_frames" "$(entries a:0 packet=pts | wc -l)"
check "keyframes" "$seconds" "$(entries v:0 packet=flags | grep -c K)"
check "video duration" "$seconds.000000" "$(entries v:0 stream=duration)"
check "audio duration" "$seconds.000000" "$(entries a:0 stream=duration)"

mkdir -p "$(dirname "$output")"
mv "$work/demo.mp4" "$output"
ls -l "$output"
