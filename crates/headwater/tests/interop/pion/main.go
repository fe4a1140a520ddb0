// A publisher by WHIP and a player by WHEP, with pion.
//
//	pion [-tcp] [-lose N] publish URL FILE.h264 FILE.ogg
//	pion [-tcp] [-lose N] play URL FOLDER PICTURES
//
// The H.264 has 30 pictures a second, and each page of the Ogg file has one packet of Opus. Both are sent in
// real time. The session is deleted when the server has reported all packets.
//
// What is played goes to FOLDER/video.h264 and FOLDER/audio.ogg. It ends after so many pictures, or with the
// server's session. Then one line of JSON on standard output tells what came.
//
// With -tcp, media go by TCP only. With -lose, one in N packets of video is lost, but it passes when it is sent
// again. Nothing of the last second of what is published is lost.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v3"
	"github.com/pion/webrtc/v3/pkg/media/h264reader"
	"github.com/pion/webrtc/v3/pkg/media/oggreader"
	"github.com/pion/webrtc/v3/pkg/media/oggwriter"
	"github.com/pion/webrtc/v3/pkg/media/samplebuilder"
)

const (
	// The longest payload of a packet.
	mtu       = 1200
	videoRate = 90_000
	audioRate = 48_000
	// Ticks of the RTP clock from one picture to the next.
	picture = videoRate / 30
	// Packets of later pictures that may come before a missing packet is given up.
	patience = 500
)

func main() {
	log.SetFlags(0)
	tcp := flag.Bool("tcp", false, "media by TCP only")
	lose := flag.Int("lose", 0, "lose one in so many packets of video")
	flag.Parse()
	arguments := flag.Args()
	if len(arguments) != 4 {
		log.Fatal("usage: pion [-tcp] [-lose N] publish URL FILE.h264 FILE.ogg | play URL FOLDER PICTURES")
	}
	settings := webrtc.SettingEngine{}
	settings.SetIncludeLoopbackCandidate(true)
	if *tcp {
		settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeTCP4})
	}
	loser := &loser{every: *lose, lost: map[uint16]bool{}}
	peer, err := connection(settings, loser)
	check(err)
	switch arguments[0] {
	case "publish":
		err = publish(peer, loser, arguments[1], arguments[2], arguments[3])
	case "play":
		var pictures int
		pictures, err = strconv.Atoi(arguments[3])
		check(err)
		err = play(peer, loser, arguments[1], arguments[2], pictures)
	default:
		err = errors.New("neither publish nor play")
	}
	check(err)
	check(peer.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A loser loses packets. It is the interceptor that is nearest to the network.
type loser struct {
	interceptor.NoOp
	lock         sync.Mutex
	every, count int
	// By sequence number.
	lost map[uint16]bool
}

// NewInterceptor makes it its own factory: there is one connection.
func (l *loser) NewInterceptor(string) (interceptor.Interceptor, error) {
	return l, nil
}

// isLost tells whether a packet is lost.
func (l *loser) isLost(info *interceptor.StreamInfo, number uint16) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.every == 0 || info.MimeType != webrtc.MimeTypeH264 || l.lost[number] {
		return false
	}
	l.count++
	isLost := l.count%l.every == 0
	if isLost {
		l.lost[number] = true
	}
	return isLost
}

// stop makes it lose nothing more, and returns how many packets it has lost.
func (l *loser) stop() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.every = 0
	return len(l.lost)
}

func (l *loser) BindLocalStream(
	info *interceptor.StreamInfo, writer interceptor.RTPWriter,
) interceptor.RTPWriter {
	return interceptor.RTPWriterFunc(
		func(header *rtp.Header, payload []byte, attributes interceptor.Attributes) (int, error) {
			if l.isLost(info, header.SequenceNumber) {
				return len(payload), nil
			}
			return writer.Write(header, payload, attributes)
		})
}

func (l *loser) BindRemoteStream(
	info *interceptor.StreamInfo, reader interceptor.RTPReader,
) interceptor.RTPReader {
	return interceptor.RTPReaderFunc(
		func(buffer []byte, attributes interceptor.Attributes) (int, interceptor.Attributes, error) {
			for {
				length, read, err := reader.Read(buffer, attributes)
				var header rtp.Header
				if err != nil {
					return length, read, err
				}
				if _, err = header.Unmarshal(buffer[:length]); err != nil || !l.isLost(info, header.SequenceNumber) {
					return length, read, err
				}
			}
		})
}

// connection makes a connection with pion's own defaults, but for these settings and losses.
func connection(settings webrtc.SettingEngine, loser *loser) (*webrtc.PeerConnection, error) {
	engine, interceptors := &webrtc.MediaEngine{}, &interceptor.Registry{}
	interceptors.Add(loser)
	if err := engine.RegisterDefaultCodecs(); err != nil {
		return nil, err
	}
	if err := webrtc.RegisterDefaultInterceptors(engine, interceptors); err != nil {
		return nil, err
	}
	return webrtc.NewAPI(
		webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(engine),
		webrtc.WithInterceptorRegistry(interceptors),
	).NewPeerConnection(webrtc.Configuration{})
}

// request sends an HTTP request. The answer must have this status.
func request(method, url, body string, status int) (http.Header, string, error) {
	request, err := http.NewRequest(method, url, bytes.NewBufferString(body))
	if err != nil {
		return nil, "", err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/sdp")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != status {
		err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
	}
	return answer.Header, string(text), err
}

// agree offers what the connection has, and returns the session's URL.
func agree(peer *webrtc.PeerConnection, to string) (string, error) {
	offer, err := peer.CreateOffer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(peer)
	if err = peer.SetLocalDescription(offer); err != nil {
		return "", err
	}
	<-gathered
	head, answer, err := request(http.MethodPost, to, peer.LocalDescription().SDP, http.StatusCreated)
	if err != nil {
		return "", err
	}
	base, err := url.Parse(to)
	if err != nil {
		return "", err
	}
	session, err := base.Parse(head.Get("Location"))
	if err != nil {
		return "", err
	}
	return session.String(), peer.SetRemoteDescription(webrtc.SessionDescription{
		Type: webrtc.SDPTypeAnswer, SDP: answer,
	})
}

func end(session string) error {
	_, _, err := request(http.MethodDelete, session, "", http.StatusOK)
	return err
}

// watch returns channels that are closed when the connection stands, and when it is over.
func watch(peer *webrtc.PeerConnection) (<-chan struct{}, <-chan struct{}) {
	up, down := make(chan struct{}), make(chan struct{})
	var once [2]sync.Once
	peer.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		switch state {
		case webrtc.PeerConnectionStateConnected:
			once[0].Do(func() { close(up) })
		case webrtc.PeerConnectionStateDisconnected, webrtc.PeerConnectionStateFailed,
			webrtc.PeerConnectionStateClosed:
			once[1].Do(func() { close(down) })
		}
	})
	return up, down
}

// A frame is an access unit of H.264 or a packet of Opus.
type frame struct {
	data  []byte
	ticks uint32
}

// outgoing is a track and all of its frames.
type outgoing struct {
	track      *webrtc.TrackLocalStaticRTP
	packetizer rtp.Packetizer
	rate       uint32
	frames     []frame
	// The highest sequence numbers that the server reports, after all is sent.
	reported chan uint16
}

func newOutgoing(
	peer *webrtc.PeerConnection, mime string, rate uint32, payloader rtp.Payloader, frames []frame,
) (*outgoing, error) {
	track, err := webrtc.NewTrackLocalStaticRTP(webrtc.RTPCodecCapability{MimeType: mime}, mime[:5], "film")
	if err != nil {
		return nil, err
	}
	only := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly}
	transceiver, err := peer.AddTransceiverFromTrack(track, only)
	if err != nil {
		return nil, err
	}
	out := &outgoing{
		track: track,
		// The track sets payload type and source.
		packetizer: rtp.NewPacketizer(mtu, 0, 0, payloader, rtp.NewRandomSequencer(), rate),
		rate:       rate,
		frames:     frames,
		reported:   make(chan uint16),
	}
	go out.listen(transceiver.Sender())
	return out, nil
}

// listen reads RTCP. pion sends again what is asked for only while somebody reads.
func (out *outgoing) listen(sender *webrtc.RTPSender) {
	for {
		packets, _, err := sender.ReadRTCP()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
			return
		}
		if err != nil {
			log.Print("RTCP: ", err)
			continue
		}
		for _, packet := range packets {
			if report, is := packet.(*rtcp.ReceiverReport); is {
				for _, of := range report.Reports {
					if of.SSRC == uint32(sender.GetParameters().Encodings[0].SSRC) {
						select {
						case out.reported <- uint16(of.LastSequenceNumber):
						default: // Nothing waits for reports before all is sent.
						}
					}
				}
			}
		}
	}
}

// send sends all frames, and waits until the server has reported the last one.
func (out *outgoing) send(began time.Time, loser *loser, down <-chan struct{}) error {
	var ticks uint64
	var last uint16
	for index, frame := range out.frames {
		if len(out.frames)-index == 30 {
			// The server cannot know that the last packet is missing.
			loser.stop()
		}
		due := began.Add(time.Duration(ticks * uint64(time.Second) / uint64(out.rate)))
		select {
		case <-time.After(time.Until(due)):
		case <-down:
			return errors.New("the connection ended while sending")
		}
		for _, packet := range out.packetizer.Packetize(frame.data, frame.ticks) {
			if err := out.track.WriteRTP(packet); err != nil {
				return err
			}
			last = packet.SequenceNumber
		}
		ticks += uint64(frame.ticks)
	}
	for {
		select {
		case number := <-out.reported:
			if number == last {
				return nil
			}
		case <-down:
			return errors.New("the connection ended before all was reported")
		}
	}
}

func publish(peer *webrtc.PeerConnection, loser *loser, to, videoFile, audioFile string) error {
	pictures, err := accessUnits(videoFile)
	if err != nil {
		return err
	}
	sounds, err := opusPackets(audioFile)
	if err != nil {
		return err
	}
	video, err := newOutgoing(peer, webrtc.MimeTypeH264, videoRate, &codecs.H264Payloader{}, pictures)
	if err != nil {
		return err
	}
	audio, err := newOutgoing(peer, webrtc.MimeTypeOpus, audioRate, &codecs.OpusPayloader{}, sounds)
	if err != nil {
		return err
	}
	up, down := watch(peer)
	session, err := agree(peer, to)
	if err != nil {
		return err
	}
	select {
	case <-up:
	case <-down:
		return errors.New("there is no connection")
	}
	began, results := time.Now(), make(chan error)
	for _, out := range []*outgoing{video, audio} {
		out := out
		go func() { results <- out.send(began, loser, down) }()
	}
	for i := 0; i < 2; i++ {
		if err := <-results; err != nil {
			return err
		}
	}
	return end(session)
}

// accessUnits reads the access units of a file in Annex B (H.264 7.4.1.2.3).
func accessUnits(name string) ([]frame, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := h264reader.NewReader(file)
	if err != nil {
		return nil, err
	}
	var frames []frame
	var unit []byte
	hasPicture := false
	for {
		nal, err := reader.NextNAL()
		if err == io.EOF {
			return append(frames, frame{unit, picture}), nil
		}
		if err != nil {
			return nil, err
		}
		isSlice := nal.UnitType >= 1 && nal.UnitType <= 5
		// first_mb_in_slice is 0, whose Exp-Golomb code is a 1.
		isFirst := isSlice && len(nal.Data) > 1 && nal.Data[1]&0x80 != 0
		if hasPicture && (isFirst || !isSlice) {
			frames = append(frames, frame{unit, picture})
			unit, hasPicture = nil, false
		}
		unit = append(append(unit, 0, 0, 0, 1), nal.Data...)
		hasPicture = hasPicture || isSlice
	}
}

// opusPackets reads the packets of an Ogg file with one packet on each page.
func opusPackets(name string) ([]frame, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, _, err := oggreader.NewWith(file)
	if err != nil {
		return nil, err
	}
	var frames []frame
	for {
		payload, _, err := reader.ParseNextPage()
		if err == io.EOF {
			return frames, nil
		}
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(payload, []byte("OpusTags")) {
			// libopus makes packets of 20 ms by default.
			frames = append(frames, frame{payload, audioRate / 50})
		}
	}
}

// arrived says what came.
type arrived struct {
	Pictures int `json:"pictures"`
	Sounds   int `json:"sounds"`
	Packets  int `json:"packets"`
	Lost     int `json:"lost"`
	// Packets that -lose lost at first.
	Again int `json:"again"`
	// Ticks of the RTP clock from one picture to the next.
	Least uint32 `json:"least"`
	Most  uint32 `json:"most"`
	// Whether the server said farewell.
	Ended bool `json:"ended"`
}

func play(peer *webrtc.PeerConnection, loser *loser, to, folder string, wanted int) error {
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		only := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
		if _, err := peer.AddTransceiverFromKind(kind, only); err != nil {
			return err
		}
	}
	came, enough := arrived{Least: ^uint32(0)}, make(chan struct{})
	farewell := make(chan struct{}, 2)
	var reading sync.WaitGroup
	results := make(chan error, 2)
	take := func(read func() error) {
		defer reading.Done()
		if err := read(); err != nil {
			results <- err
		}
	}
	// pion calls this for one track after the other.
	peer.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		reading.Add(1)
		go func() {
			if saysFarewell(receiver) {
				farewell <- struct{}{}
			}
		}()
		if track.Kind() == webrtc.RTPCodecTypeVideo {
			go take(func() error { return came.takeVideo(track, folder, wanted, enough) })
		} else {
			go take(func() error { return came.takeAudio(track, folder) })
		}
	})
	_, down := watch(peer)
	session, err := agree(peer, to)
	if err != nil {
		return err
	}
	select {
	case <-enough:
		err = end(session)
	case <-farewell:
		came.Ended = true
	case <-down:
		err = errors.New("the connection ended without a farewell")
	case err = <-results:
	}
	if err != nil {
		return err
	}
	// Tracks end with the connection, when what came is read.
	if err = peer.Close(); err != nil {
		return err
	}
	reading.Wait()
	came.Again = loser.stop()
	select {
	case err = <-results:
		return err
	default:
		return json.NewEncoder(os.Stdout).Encode(came)
	}
}

// saysFarewell reads RTCP until the server says farewell (BYE), or the track ends. pion tells nobody of the end of
// DTLS.
func saysFarewell(receiver *webrtc.RTPReceiver) bool {
	for {
		packets, _, err := receiver.ReadRTCP()
		if err != nil {
			return false
		}
		for _, packet := range packets {
			if _, is := packet.(*rtcp.Goodbye); is {
				return true
			}
		}
	}
}

// takeVideo writes whole pictures until the track ends.
func (came *arrived) takeVideo(
	track *webrtc.TrackRemote, folder string, wanted int, enough chan<- struct{},
) error {
	file, err := os.Create(filepath.Join(folder, "video.h264"))
	if err != nil {
		return err
	}
	defer file.Close()
	builder := samplebuilder.New(patience, &codecs.H264Packet{}, videoRate)
	var last *rtp.Packet
	var before uint32
	for isOver := false; !isOver; {
		packet, _, err := track.ReadRTP()
		if err != nil {
			if last == nil {
				return nil
			}
			// A picture is complete only when there is a packet after it.
			isOver, packet = true, &rtp.Packet{Header: rtp.Header{SequenceNumber: last.SequenceNumber + 1}}
		} else {
			last = packet
			came.Packets++
		}
		if came.Pictures == wanted {
			continue
		}
		builder.Push(packet)
		for sample := builder.Pop(); sample != nil && came.Pictures < wanted; sample = builder.Pop() {
			came.Lost += int(sample.PrevDroppedPackets)
			if _, err := file.Write(sample.Data); err != nil {
				return err
			}
			if step := sample.PacketTimestamp - before; came.Pictures > 0 {
				if step < came.Least {
					came.Least = step
				}
				if step > came.Most {
					came.Most = step
				}
			}
			before = sample.PacketTimestamp
			came.Pictures++
			if came.Pictures == wanted {
				close(enough)
			}
		}
	}
	return nil
}

func (came *arrived) takeAudio(track *webrtc.TrackRemote, folder string) error {
	file, err := oggwriter.New(filepath.Join(folder, "audio.ogg"), audioRate, 2)
	if err != nil {
		return err
	}
	for {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return file.Close()
		}
		if err := file.WriteRTP(packet); err != nil {
			return err
		}
		came.Sounds++
	}
}
