package worker

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"inferplan/engine"
)

// ErrToken is returned when the other side of a connection between hosts does not know the token.
var ErrToken = errors.New("the token was refused")

// errUnanswered is returned when a server does not begin the handshake.
var errUnanswered = errors.New("the server does not speak the protocol of workers")

// DefaultSilence is the time that a host may be silent before the other side takes it for lost.
const DefaultSilence = 2 * time.Second

const (
	handshakeTime = 5 * time.Second
	beatSize      = 16
	doneSize      = 8 + resultSize
	pieceSize     = 1 << 20 // bytes written under one deadline
	minToken      = 16
)

// CheckToken refuses a token that could be guessed.
func CheckToken(token []byte) error {
	if len(token) < minToken {
		return fmt.Errorf("token of %d bytes, expected at least %d; plan serve --join-token-file makes one where the file is not there", len(token), minToken)
	}
	return nil
}

// challenge is the first frame of a connection, from the server.
type challenge struct {
	Nonce string `json:"nonce"`
}

// offer answers it: a host offers a device and proves that it knows the token.
type offer struct {
	Host  string `json:"host"` // unique among the hosts of a server
	Kind  string `json:"kind"`
	Index int    `json:"index"`
	Nonce string `json:"nonce"`
	MAC   string `json:"mac"`
}

// proof ends the handshake: the server knows the token as well.
type proof struct {
	MAC string `json:"mac"`
}

// newNonce returns a random text, which makes every proof of a handshake a new one.
func newNonce() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// proofMAC returns what proves that a role (worker or server) knows the token. It binds the proof to both nonces
// and to the offered device.
func proofMAC(token []byte, role, nonce string, o *offer) string {
	h := hmac.New(sha256.New, token)
	fmt.Fprintf(h, "inferplan %s %d %q %q %q %q %d", role, Version, nonce, o.Nonce, o.Host, o.Kind, o.Index)
	return hex.EncodeToString(h.Sum(nil))
}

// provesToken reports whether givenMAC proves that the other side, in its role, knows the token.
func provesToken(token []byte, role, nonce string, o *offer, givenMAC string) bool {
	return hmac.Equal([]byte(proofMAC(token, role, nonce, o)), []byte(givenMAC))
}

// link is a connection between two hosts. It carries the frames of the control protocol, some of them followed by
// the bytes of tensors. Only one goroutine may read, any may write.
type link struct {
	conn    net.Conn
	silence time.Duration // the time that the other side may be silent
	decoder Decoder

	mu       sync.Mutex
	outFrame []byte
}

// nextFrame reads from the connection until a whole frame is there, and returns it. Its payload is valid until the
// next call. It returns an error if the other side is silent for too long.
func (l *link) nextFrame() (Type, []byte, error) {
	for {
		t, p, ok, err := l.decoder.NextFrame()
		if err != nil || ok {
			return t, p, err
		}
		n, err := l.readSome(l.decoder.Space())
		if err != nil {
			return 0, nil, err
		}
		l.decoder.MarkFilled(n)
	}
}

// readSome reads at least one byte, or returns an error if none comes in time (silence). A connection that also failed
// while bytes came shows that at the next read.
func (l *link) readSome(b []byte) (int, error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(l.silence)); err != nil {
		return 0, err
	}
	n, err := l.conn.Read(b)
	if n > 0 {
		err = nil
	}
	return n, err
}

// readData fills dst with the bytes of tensors that follow a frame: first those that were read with it, then more
// from the connection.
func (l *link) readData(dst []byte) error {
	n := copy(dst, l.decoder.buf[l.decoder.start:l.decoder.end])
	l.decoder.start += n
	for dst = dst[n:]; len(dst) > 0; dst = dst[n:] {
		var err error
		if n, err = l.readSome(dst); err != nil {
			return err
		}
	}
	return nil
}

// write sends a frame and the bytes of tensors that follow it. Any goroutine may call it. Large data are sent in
// pieces, each under a deadline of its own.
func (l *link) write(t Type, payload, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outFrame = AppendFrame(l.outFrame[:0], t, payload)
	if len(data) > 0 && len(data) <= decoderSize { // one packet rather than two
		l.outFrame = append(l.outFrame, data...)
		data = nil
	}
	if err := l.writePiece(l.outFrame); err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), pieceSize)
		if err := l.writePiece(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// writePiece writes a part of a frame, under a deadline of its own.
func (l *link) writePiece(b []byte) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(l.silence)); err != nil {
		return err
	}
	_, err := l.conn.Write(b)
	return err
}

// writeJSON sends a frame whose payload is a JSON document.
func (l *link) writeJSON(t Type, doc any) error {
	b, err := appendJSON(nil, t, doc)
	if err != nil {
		return err
	}
	return l.write(t, b[HeaderSize:], nil) // write adds the header itself
}

// expect waits for a frame of type wanted in the handshake between hosts, and decodes it. An error frame means that
// the other side refused the token. Any other frame is an error.
func expect[T any](l *link, wanted Type) (T, error) {
	var zero T
	t, p, err := l.nextFrame()
	if err != nil {
		return zero, fmt.Errorf("wait for %s: %w", wanted, err)
	}
	if t == TypeError {
		f, err := parseJSON[Failure](t, p)
		if err != nil {
			return zero, err
		}
		return zero, fmt.Errorf("%w: %s", ErrToken, f.Text)
	}
	if t != wanted {
		return zero, fmt.Errorf("%w: %s, expected %s", ErrProtocol, t, wanted)
	}
	return parseJSON[T](t, p)
}

// admitWorker does the server's side of the handshake with a host that has connected: challenge, offer, proof. It
// returns what the host offers, or ErrToken if the host does not know the token. Each side proves with a code (HMAC)
// over the other's random number, so the token itself is not sent.
func (l *link) admitWorker(token []byte) (*offer, error) {
	c := challenge{newNonce()}
	if err := l.writeJSON(TypeChallenge, c); err != nil {
		return nil, err
	}
	o, err := expect[offer](l, TypeOffer)
	if err != nil {
		return nil, err
	}
	if !provesToken(token, "worker", c.Nonce, &o, o.MAC) {
		_ = l.writeJSON(TypeError, Failure{Answers: TypeOffer.String(), Code: OtherFailure, Text: "the worker's token is not the server's"})
		return nil, ErrToken
	}
	if o.Kind == "" || o.Host == "" || o.Index < 0 || len(o.Kind)+len(o.Host) > 512 {
		return nil, fmt.Errorf("%w: offer of device %q %d by host %q", ErrProtocol, o.Kind, o.Index, o.Host)
	}
	return &o, l.writeJSON(TypeProof, proof{proofMAC(token, "server", c.Nonce, &o)})
}

// proveToServer does the host's side of the handshake: it answers the server's challenge with an offer of a device
// and the proof that it knows the token, and checks that the server knows it, too.
func (l *link) proveToServer(token []byte, o offer) error {
	c, err := expect[challenge](l, TypeChallenge)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	o.Nonce = newNonce()
	o.MAC = proofMAC(token, "worker", c.Nonce, &o)
	if err := l.writeJSON(TypeOffer, o); err != nil {
		return err
	}
	p, err := expect[proof](l, TypeProof)
	if err != nil {
		return err
	}
	if !provesToken(token, "server", c.Nonce, &o, p.MAC) {
		return fmt.Errorf("%w: the server does not know it", ErrToken)
	}
	return nil
}

// appendBeat appends a sign of life: the server's clock, and in the answer also the worker's clock.
func appendBeat(dst []byte, server, worker int64) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(server))
	return binary.LittleEndian.AppendUint64(dst, uint64(worker))
}

// parseBeat reads the two clocks of a beat frame.
func parseBeat(p []byte) (server, worker int64, err error) {
	if len(p) != beatSize {
		return 0, 0, fmt.Errorf("%w: beat frame of %d bytes, expected %d", ErrProtocol, len(p), beatSize)
	}
	return int64(binary.LittleEndian.Uint64(p)), int64(binary.LittleEndian.Uint64(p[8:])), nil
}

// appendDone appends the payload of a done frame, which a host sends when a run is done: the number n of bytes of
// output that follow the frame, and the result.
func appendDone(dst []byte, n int64, r *Result) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
	return append(dst, AppendResult(nil, r)[HeaderSize:]...)
}

// parseDone reads the payload of a done frame: the number of bytes of output that follow it, and the result.
func parseDone(p []byte) (int64, Result, error) {
	if len(p) < doneSize {
		return 0, Result{}, fmt.Errorf("%w: done frame of %d bytes, expected at least %d", ErrProtocol, len(p), doneSize)
	}
	r, err := ParseResult(p[8:])
	n := int64(binary.LittleEndian.Uint64(p))
	if err == nil && (n < 0 || r.Code != OK && n != 0) {
		err = fmt.Errorf("%w: done frame with %d bytes of output and code %d", ErrProtocol, n, r.Code)
	}
	return n, r, err
}

// linkStage describes the tensors of a stage, as both ends of a link need them.
type linkStage struct {
	maxBatch        int
	inputs, outputs []engine.Spec
}

// tensorBytes returns the bytes of the inputs and outputs of a batch. ok is false if there is no such stage (s is
// nil), or if the batch is larger than the stage was loaded for.
func (s *linkStage) tensorBytes(batch uint32) (inputBytes, outputBytes int64, ok bool) {
	if s == nil || batch == 0 || int64(batch) > int64(s.maxBatch) {
		return 0, 0, false
	}
	return Span(s.inputs, int(batch)), Span(s.outputs, int(batch)), true
}

// checkSpecs refuses descriptions of tensors by another host that are beyond belief: more than 1024 tensors, 16
// dimensions, or maxTensor bytes at a batch size.
func checkSpecs(specs []engine.Spec, batch int) error {
	for i := range specs {
		s := &specs[i]
		size := int64(s.Type.Size()) * int64(batch)
		if size <= 0 || len(s.Shape) > 16 {
			return fmt.Errorf("%w: tensor %q of another host: type %v, shape %v", ErrProtocol, s.Name, s.Type, s.Shape)
		}
		for k, d := range s.Shape {
			if d == engine.BatchDim && k == 0 {
				continue
			}
			if d < 1 || d > maxTensor/size {
				return fmt.Errorf("%w: tensor %q of another host has shape %v", ErrProtocol, s.Name, s.Shape)
			}
			size *= d
		}
	}
	if len(specs) > 1024 {
		return fmt.Errorf("%w: %d tensors of another host", ErrProtocol, len(specs))
	}
	return nil
}

// maxTensor bounds a batch of one tensor between hosts.
const maxTensor = 1 << 32
