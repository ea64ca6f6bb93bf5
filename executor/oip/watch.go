package oip

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"inferplan/executor/httplimit"
)

// gRPC delivers only complete messages, and cannot limit messages that never get complete. So a connection reads
// along, below gRPC and above TLS. It follows the HTTP/2 frames in both directions, and knows which calls have not
// been received to their end and how many of their bytes lie in memory. It books these bytes, and closes itself if a
// call takes too long or the memory is full.

// Memory that a frame and a call cost in addition to their bytes.
const (
	frameCost  = 512
	streamCost = 16 << 10
)

// smallMessages is the number of bytes that a call which stays open, such as one of reflection, may send without a
// time limit.
const smallMessages = 64 << 10

// watchedCredentials puts a watchedConn on top of the connection that the inner credentials make.
type watchedCredentials struct {
	credentials.TransportCredentials
	door *httplimit.Door
}

// ServerHandshake implements credentials.TransportCredentials. It does the handshake and returns the connection wrapped
// in a watchedConn, which bounds the memory and the time that incoming calls take: gRPC itself reads messages of any
// number of calls into memory before handlers see them.
func (w watchedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := w.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	c := &watchedConn{Conn: conn, timeout: w.door.ReadTimeout, streams: map[uint32]incomingCall{}}
	c.inFrames.skip = prefaceBytes
	client := httplimit.HostOf(conn.RemoteAddr().String())
	c.memoryHold.Open(w.door.Budget, client, c)
	return c, watchedInfo{info, client}, nil
}

// watchedInfo gives a call its client.
type watchedInfo struct {
	credentials.AuthInfo
	client string
}

// Clone implements credentials.TransportCredentials.
func (w watchedCredentials) Clone() credentials.TransportCredentials {
	return watchedCredentials{w.TransportCredentials.Clone(), w.door}
}

// watchedConn is an HTTP/2 connection that reads along.
type watchedConn struct {
	net.Conn
	timeout    time.Duration
	memoryHold httplimit.MemoryHold

	mu                  sync.Mutex // guards the fields below
	inFrames, outFrames frameReader
	streams             map[uint32]incomingCall // calls that the client has not sent to their end
	lastStream          uint32                  // highest stream number that the client has opened
	totalBytes          int64                   // memory that these calls cost
	bookedBytes         int64                   // memory that is booked
	timer               *time.Timer             // runs while some streams may take too long
	timerArmed          bool
	timedOut            bool
	closed              bool
}

// incomingCall is a call that is being received.
type incomingCall struct {
	beganAt   time.Time // when its message began, or the call itself
	bytes     int64     // including the cost of its frames
	head      [5]byte   // head of the message: flag and length
	headBytes int       // bytes of head that have come
	remaining int64     // bytes of the message that have not come
	complete  bool      // the message is complete, and no other has begun
}

// deadline returns the time at which the call counts as stuck, because its message does not arrive completely. If
// it is zero, there is none.
func (s *incomingCall) deadline(timeout time.Duration) time.Time {
	if s.complete && s.bytes <= smallMessages {
		return time.Time{}
	}
	return s.beganAt.Add(timeout)
}

var errSlowMessage = errors.New("a message took too long to come")

// Read implements net.Conn. It follows the calls in the data that it reads and books their memory in the budget of all
// connections. If none is free, it waits, so that the client is slowed down, and may return an error that ends the
// connection. A message that came too slowly ends it, too.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	if c.timedOut {
		c.mu.Unlock()
		return 0, errSlowMessage
	}
	if n > 0 {
		c.followFrames(&c.inFrames, p[:n], true)
	}
	unbooked := c.unbookedBytes()
	c.mu.Unlock()
	if berr := c.bookBytes(unbooked); berr != nil {
		return 0, berr
	}
	return n, err
}

// Write implements net.Conn. The answers that it sees may end calls, whose memory is then freed.
func (c *watchedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.followFrames(&c.outFrames, p, false)
	unbooked := c.unbookedBytes() // memory that is freed by calls that ended
	c.mu.Unlock()
	_ = c.bookBytes(unbooked) // the next Read returns an error
	return c.Conn.Write(p)
}

// Close implements net.Conn. It stops the timer and frees the memory that is booked for the connection's calls.
func (c *watchedConn) Close() error {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.bookedBytes = 0
	c.memoryHold.Close()
	c.mu.Unlock()
	return c.Conn.Close()
}

// unbookedBytes returns the memory that the connection's calls take beyond what is booked, and counts it as
// booked. The caller books it without holding the lock. It also starts the timer that looks for stuck calls.
func (c *watchedConn) unbookedBytes() int64 {
	if c.closed {
		return 0
	}
	unbooked := c.totalBytes - c.bookedBytes
	c.bookedBytes = c.totalBytes
	if c.totalBytes > 0 && !c.timerArmed {
		c.armTimer(c.timeout)
	}
	return unbooked
}

// bookBytes books n bytes of memory for the client, or frees them if n is negative. Booking may wait for memory.
func (c *watchedConn) bookBytes(n int64) error {
	if n == 0 {
		return nil
	}
	if err := c.memoryHold.Grow(n); err != nil {
		return err
	}
	return nil
}

// armTimer starts the timer that calls checkCalls after d.
func (c *watchedConn) armTimer(d time.Duration) {
	c.timerArmed = true
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.checkCalls)
	} else {
		c.timer.Reset(d)
	}
}

// checkCalls is called by the timer. It closes the connection if the message of one of its calls has not arrived in
// time. Otherwise it sets the timer for the next deadline of a call.
func (c *watchedConn) checkCalls() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timerArmed = false
	if c.closed {
		return
	}
	var nextDeadline time.Time
	for _, s := range c.streams {
		if t := s.deadline(c.timeout); !t.IsZero() && (nextDeadline.IsZero() || t.Before(nextDeadline)) {
			nextDeadline = t
		}
	}
	switch wait := time.Until(nextDeadline); {
	case nextDeadline.IsZero():
		if len(c.streams) > 0 {
			c.armTimer(c.timeout)
		}
	case wait > 0:
		c.armTimer(wait)
	default:
		c.timedOut = true
		c.Evict()
	}
}

// Evict makes a waiting Read return, and gRPC then closes the connection.
func (c *watchedConn) Evict() { _ = c.Conn.SetReadDeadline(time.Unix(1, 0)) }

// Parts of HTTP/2 (RFC 9113).
const (
	prefaceBytes = 24 // sent by a client before its first frame
	frameHeader  = 9

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 0x1
	flagPadded    = 0x8
)

// frameReader is the state of reading one direction of a connection.
type frameReader struct {
	skip      int // bytes before the first frame
	head      [frameHeader]byte
	headBytes int // bytes of head that have come
	remaining int // bytes of the frame's payload that have not come
	pad       int // last bytes of the payload that are padding
	typ       byte
	flags     byte
	id        uint32
	// padPending says that the first byte of the payload, which is the length of the padding, has not come.
	padPending bool
}

// followFrames follows the HTTP/2 frames (each has a head with length, type, flags and stream) in the next bytes p of
// one direction, to know which calls are open and how much memory they take. f is the state between two pieces of data,
// which may cut a frame anywhere. fromClient is the direction.
func (c *watchedConn) followFrames(f *frameReader, p []byte, fromClient bool) {
	if n := min(f.skip, len(p)); n > 0 {
		f.skip -= n
		p = p[n:]
	}
	for len(p) > 0 {
		// Between two frames: read the head of the next one.
		if f.remaining == 0 {
			n := copy(f.head[f.headBytes:], p)
			f.headBytes += n
			p = p[n:]
			if f.headBytes < frameHeader {
				return
			}
			f.headBytes = 0
			f.remaining = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
			f.typ, f.flags = f.head[3], f.head[4]
			f.id = binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)
			f.pad, f.padPending = 0, f.typ == frameData && f.flags&flagPadded != 0
			if fromClient {
				c.noteFrame(f)
			}
		} else {
			// Inside a frame: pass on the payload of data.
			n := min(f.remaining, len(p))
			if fromClient && f.typ == frameData {
				c.noteData(f, p[:n])
			}
			f.remaining -= n
			p = p[n:]
		}

		// The end of a frame may end its call.
		if f.remaining == 0 && (f.typ == frameReset || f.flags&flagEndStream != 0 && f.typ <= frameHeaders) {
			if s, ok := c.streams[f.id]; ok {
				c.totalBytes -= streamCost + s.bytes
				delete(c.streams, f.id)
			}
		}
	}
}

// noteFrame handles the head of a frame from the client, in f: headers of a new stream open a call, unless they also end
// it, and data adds the cost of its frame to the call's memory.
func (c *watchedConn) noteFrame(f *frameReader) {
	if f.typ == frameHeaders && f.id > c.lastStream {
		c.lastStream = f.id
		if f.flags&flagEndStream == 0 {
			c.streams[f.id] = incomingCall{beganAt: time.Now()}
			c.totalBytes += streamCost
		}
	}
	if f.typ != frameData {
		return
	}
	if s, ok := c.streams[f.id]; ok {
		s.bytes += frameCost
		c.totalBytes += frameCost
		c.streams[f.id] = s
	}
}

// noteData handles a part p of the payload of a data frame: it adds to the memory of the call and follows the gRPC
// messages in it, each with a head of five bytes, to know whether one is incomplete.
func (c *watchedConn) noteData(f *frameReader, p []byte) {
	s, ok := c.streams[f.id]
	if !ok {
		return
	}
	s.bytes += int64(len(p))
	c.totalBytes += int64(len(p))
	frameRemaining := f.remaining // of the frame, from the start of p

	// Leave out the padding.
	if f.padPending {
		f.pad, f.padPending = int(p[0]), false
		p = p[1:]
		frameRemaining--
	}
	if end := frameRemaining - f.pad; end < len(p) {
		p = p[:max(end, 0)]
	}

	// Follow the messages in the data.
	for len(p) > 0 {
		if s.remaining > 0 {
			n := min(s.remaining, int64(len(p)))
			s.remaining -= n
			p = p[n:]
			s.complete = s.remaining == 0
			continue
		}
		if s.headBytes == 0 && s.complete {
			s.beganAt, s.complete = time.Now(), false
		}
		n := copy(s.head[s.headBytes:], p)
		s.headBytes += n
		p = p[n:]
		if s.headBytes == len(s.head) {
			s.headBytes = 0
			s.remaining = int64(binary.BigEndian.Uint32(s.head[1:]))
			s.complete = s.remaining == 0
		}
	}
	c.streams[f.id] = s
}
