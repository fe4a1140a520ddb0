#!/usr/bin/python3
"""A publisher by WHIP and a player by WHEP, with GStreamer's webrtcbin.

  webrtcbin.py publish URL FOLDER [--pem FILE] [--tcp]
  webrtcbin.py play URL FOLDER [--pictures COUNT] [--pem FILE] [--tcp]

`publish` encodes pictures with x264 and sound with Opus until SIGTERM. x264 makes a keyframe only when the
server asks. What is sent also goes to FOLDER/video.h264 and FOLDER/audio.ogg.

`play` ends after so many pictures, or with the server's session. It writes the MD5 of each decoded picture to
FOLDER/pictures, and that of each packet of Opus to FOLDER/sounds.

The file has a certificate and its key, for DTLS. Without it, GStreamer 1.22 makes a certificate with RSA. With
--tcp, media go by TCP only.
"""

import argparse
import hashlib
import re
import signal
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstSdp", "1.0")
gi.require_version("GstWebRTC", "1.0")
from gi.repository import GLib, Gst, GstSdp, GstWebRTC  # noqa: E402

RTP = {
    "video": "application/x-rtp,media=video,encoding-name=H264,payload=96,clock-rate=90000,"
    "packetization-mode=(string)1",
    "audio": "application/x-rtp,media=audio,encoding-name=OPUS,payload=97,clock-rate=48000,"
    "encoding-params=(string)2",
}

# A corner of the picture is noise, so no two pictures are equal.
PUBLISH = """
    webrtcbin name=peer bundle-policy=max-bundle
    videotestsrc is-live=true
        ! video/x-raw,format=I420,width=320,height=240,framerate=30/1
        ! x264enc tune=zerolatency speed-preset=veryfast bitrate=600 key-int-max=10000
        ! video/x-h264,profile=constrained-baseline,stream-format=byte-stream,alignment=au
        ! tee name=video ! queue ! filesink location={folder}/video.h264
    video. ! queue ! h264parse ! rtph264pay aggregate-mode=zero-latency ! {video} ! peer.
    audiotestsrc is-live=true wave=pink-noise volume=0.1
        ! audio/x-raw,rate=48000,channels=2 ! opusenc
        ! tee name=audio ! queue ! oggmux max-page-delay=0 ! filesink location={folder}/audio.ogg
    audio. ! queue ! rtpopuspay ! {audio} ! peer.
"""

# On a busy machine, webrtcbin loses packets that come before it has the keys.
DECODE = {
    "video": "rtph264depay wait-for-keyframe=true request-keyframe=true ! h264parse ! avdec_h264"
    " ! video/x-raw,format=I420 ! appsink name=sink",
    "audio": "rtpopusdepay ! appsink name=sink",
}

END = "-----END CERTIFICATE-----"


def ask(url, method, body=None):
    """Returns the answer's headers and payload."""
    request = urllib.request.Request(url, method=method, data=body and body.encode())
    if body:
        request.add_header("Content-Type", "application/sdp")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {url}: {error.code}: {error.read().decode()}")


def is_datagrams(line):
    """Whether a line of SDP is a candidate for UDP."""
    return line.startswith("a=candidate:") and line.split()[2].lower() == "udp"


class Peer:
    """A pipeline with a webrtcbin. Threads of GStreamer tell what happens, and `wait` waits for it."""

    def __init__(self, pipeline, options):
        self.pipeline, self.webrtc = pipeline, pipeline.get_by_name("peer")
        self.loop, self.happened, self.error = GLib.MainLoop(), set(), None
        self.url, self.tcp, self.pem = options.url, options.tcp, None
        if options.pem:
            with open(options.pem) as file:
                self.pem = file.read()
            pipeline.connect("deep-element-added", self.added)
        self.webrtc.connect("notify::ice-gathering-state", self.gathered)
        self.webrtc.connect("notify::connection-state", self.changed)
        bus = pipeline.get_bus()
        bus.add_signal_watch()
        bus.connect("message::error", self.failed)

    def added(self, _pipeline, _bin, element):
        if element.get_name().startswith("dtlssrtpdec"):
            element.set_property("pem", self.pem)

    def tell(self, what):
        GLib.idle_add(self.note, what)

    def note(self, what):
        """Runs within the loop."""
        self.happened.add(what)
        self.loop.quit()

    def wait(self, *wanted):
        while not self.happened.intersection([*wanted, "failed"]):
            self.loop.run()
        if "failed" in self.happened:
            sys.exit(str(self.error))

    def gathered(self, *_):
        state = self.webrtc.get_property("ice-gathering-state")
        if state == GstWebRTC.WebRTCICEGatheringState.COMPLETE:
            self.tell("gathered")

    def changed(self, *_):
        ends = (GstWebRTC.WebRTCPeerConnectionState.FAILED, GstWebRTC.WebRTCPeerConnectionState.CLOSED)
        if self.webrtc.get_property("connection-state") in ends:
            self.tell("over")

    def failed(self, _, message):
        self.error = message.parse_error()
        self.tell("failed")

    def agree(self):
        """Offers what the pipeline has. Returns the session's URL."""
        promise = Gst.Promise.new()
        self.webrtc.emit("create-offer", None, promise)
        promise.wait()
        # The offer lives as long as the reply.
        reply = promise.get_reply()
        self.webrtc.emit("set-local-description", reply.get_value("offer"), None)
        self.wait("gathered")
        offer = self.webrtc.get_property("local-description").sdp.as_text()
        if self.pem:
            # webrtcbin makes its fingerprint of the certificate and the key.
            der = ssl.PEM_cert_to_DER_cert(self.pem[: self.pem.index(END) + len(END)])
            fingerprint = hashlib.sha256(der).digest().hex(":").upper()
            offer = re.sub("(?<=a=fingerprint:sha-256 )[0-9A-F:]+", fingerprint, offer)
        headers, answer = ask(self.url, "POST", offer)
        if self.tcp:
            lines = answer.splitlines(keepends=True)
            answer = "".join(line for line in lines if not is_datagrams(line))
        _, answer = GstSdp.SDPMessage.new_from_text(answer)
        answer = GstWebRTC.WebRTCSessionDescription.new(GstWebRTC.WebRTCSDPType.ANSWER, answer)
        self.webrtc.emit("set-remote-description", answer, None)
        return urllib.parse.urljoin(self.url, headers["Location"])


def publish(options):
    peer = Peer(Gst.parse_launch(PUBLISH.format(folder=options.folder, **RTP)), options)
    # When this is told, the caps of what is sent are known. So the offer has its sources.
    peer.webrtc.connect("on-negotiation-needed", lambda _: peer.tell("negotiation"))
    peer.pipeline.set_state(Gst.State.PLAYING)
    peer.wait("negotiation")
    session = peer.agree()
    GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, signal.SIGTERM, peer.note, "ended")
    peer.wait("ended", "over")
    if "over" in peer.happened:
        sys.exit("the connection ended")
    ask(session, "DELETE")
    peer.pipeline.set_state(Gst.State.NULL)


def play(options):
    pipeline = Gst.Pipeline()
    webrtc = Gst.ElementFactory.make("webrtcbin", "peer")
    webrtc.set_property("bundle-policy", GstWebRTC.WebRTCBundlePolicy.MAX_BUNDLE)
    # In milliseconds. So what a busy machine loses has time to come again.
    webrtc.set_property("latency", 1000)
    pipeline.add(webrtc)
    peer = Peer(pipeline, options)
    pipeline.set_state(Gst.State.PLAYING)
    for caps in RTP.values():
        direction = GstWebRTC.WebRTCRTPTransceiverDirection.RECVONLY
        transceiver = webrtc.emit("add-transceiver", direction, Gst.Caps.from_string(caps))
        transceiver.set_property("do-nack", True)
    seen = {"video": [], "audio": []}

    def take(sink, kind):
        buffer = sink.emit("pull-sample").get_buffer()
        seen[kind].append(hashlib.md5(buffer.extract_dup(0, buffer.get_size())).hexdigest())
        if len(seen["video"]) == options.pictures:
            peer.tell("enough")
        return Gst.FlowReturn.OK

    def begin(_, pad):
        kind = pad.get_current_caps().get_structure(0).get_string("media")
        branch = Gst.parse_bin_from_description(DECODE[kind], True)
        sink = branch.get_by_name("sink")
        # Pictures are taken as they are decoded.
        sink.set_property("sync", False)
        sink.set_property("emit-signals", True)
        sink.connect("new-sample", take, kind)
        pipeline.add(branch)
        branch.sync_state_with_parent()
        pad.link(branch.get_static_pad("sink"))

    webrtc.connect("pad-added", begin)
    # Some seconds after the server said farewell (BYE), when all that came is decoded. webrtcbin tells no other
    # end over UDP.
    webrtc.get_by_name("rtpbin").connect("on-bye-timeout", lambda *_: peer.tell("over"))
    session = peer.agree()
    peer.wait("enough", "over")
    if "over" not in peer.happened:
        ask(session, "DELETE")
    pipeline.set_state(Gst.State.NULL)
    for kind, name in (("video", "pictures"), ("audio", "sounds")):
        with open(f"{options.folder}/{name}", "w") as file:
            file.writelines(f"{hashed}\n" for hashed in seen[kind])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["publish", "play"])
    parser.add_argument("url")
    parser.add_argument("folder")
    parser.add_argument("--pictures", type=int)
    parser.add_argument("--pem")
    parser.add_argument("--tcp", action="store_true")
    options = parser.parse_args()
    Gst.init(None)
    {"publish": publish, "play": play}[options.what](options)
