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

// ServerHandshake implements credentials.TransportCredentials.
func (w watchedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := w.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	c := &watchedConn{Conn: conn, timeout: w.door.ReadTimeout, streams: map[uint32]inbound{}}
	c.in.skip = prefaceBytes
	client := httplimit.Host(conn.RemoteAddr().String())
	c.hold.Open(w.door.Budget, client, c)
	return c, watchedInfo{info, client}, nil
}

// watchedInfo tells a call its client.
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
	timeout time.Duration
	hold    httplimit.Hold

	mu      sync.Mutex // guards the fields below
	in, out frames
	streams map[uint32]inbound // calls that the client has not sent to their end
	last    uint32             // highest stream number that the client has opened
	total   int64              // memory that these calls cost
	booked  int64              // memory that is booked
	timer   *time.Timer        // runs while some streams may take too long
	armed   bool
	late    bool
	closed  bool
}

// incomingCall is a call that is being received.
type inbound struct {
	since time.Time // when its message began, or the call itself
	bytes int64     // including the cost of its frames
	head  [5]byte   // head of the message: flag and length
	have  int       // bytes of head that have come
	left  int64     // bytes of the message that have not come
	done  bool      // the message is complete, and no other has begun
}

// deadline returns the time at which the call counts as stuck. If it is zero, there is none.
func (s *inbound) overdue(timeout time.Duration) time.Time {
	if s.done && s.bytes <= smallMessages {
		return time.Time{}
	}
	return s.since.Add(timeout)
}

var errSlowMessage = errors.New("a message took too long to come")

// Read implements net.Conn. It waits if the client takes much memory and none is free.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	if c.late {
		c.mu.Unlock()
		return 0, errSlowMessage
	}
	if n > 0 {
		c.follow(&c.in, p[:n], true)
	}
	more := c.toBook()
	c.mu.Unlock()
	if berr := c.book(more); berr != nil {
		return 0, berr
	}
	return n, err
}

// Write implements net.Conn. The answers that it sees may end calls.
func (c *watchedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.follow(&c.out, p, false)
	more := c.toBook() // memory that is freed by calls that ended
	c.mu.Unlock()
	_ = c.book(more) // the next Read returns an error
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.booked = 0
	c.hold.Close()
	c.mu.Unlock()
	return c.Conn.Close()
}

// unbookedBytes returns the memory that the calls take beyond what is booked. The caller books it without the lock.
// unbookedBytes also starts the timer.
func (c *watchedConn) toBook() int64 {
	if c.closed {
		return 0
	}
	more := c.total - c.booked
	c.booked = c.total
	if c.total > 0 && !c.armed {
		c.arm(c.timeout)
	}
	return more
}

// bookBytes books memory, or frees it if n is negative. Booking may wait.
func (c *watchedConn) book(more int64) error {
	if more == 0 {
		return nil
	}
	if err := c.hold.Grow(more); err != nil {
		return err
	}
	return nil
}

// armTimer starts the timer.
func (c *watchedConn) arm(d time.Duration) {
	c.armed = true
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.look)
	} else {
		c.timer.Reset(d)
	}
}

// checkCalls closes the connection if one of its calls is stuck. Otherwise it starts the timer for the next deadline.
func (c *watchedConn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	if c.closed {
		return
	}
	var next time.Time
	for _, s := range c.streams {
		if t := s.overdue(c.timeout); !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	switch wait := time.Until(next); {
	case next.IsZero():
		if len(c.streams) > 0 {
			c.arm(c.timeout)
		}
	case wait > 0:
		c.arm(wait)
	default:
		c.late = true
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
type frames struct {
	skip  int // bytes before the first frame
	head  [frameHeader]byte
	have  int // bytes of head that have come
	left  int // bytes of the frame's payload that have not come
	pad   int // last bytes of the payload that are padding
	typ   byte
	flags byte
	id    uint32
	// padPending says that the first byte of the payload, which is the length of the padding, has not come.
	padded bool
}

// followFrames reads the next bytes of one direction.
func (c *watchedConn) follow(f *frames, p []byte, fromClient bool) {
	if n := min(f.skip, len(p)); n > 0 {
		f.skip -= n
		p = p[n:]
	}
	for len(p) > 0 {
		// Between two frames: read the head of the next one.
		if f.left == 0 {
			n := copy(f.head[f.have:], p)
			f.have += n
			p = p[n:]
			if f.have < frameHeader {
				return
			}
			f.have = 0
			f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
			f.typ, f.flags = f.head[3], f.head[4]
			f.id = binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)
			f.pad, f.padded = 0, f.typ == frameData && f.flags&flagPadded != 0
			if fromClient {
				c.opens(f)
			}
		} else {
			// Inside a frame: pass on the payload of data.
			n := min(f.left, len(p))
			if fromClient && f.typ == frameData {
				c.data(f, p[:n])
			}
			f.left -= n
			p = p[n:]
		}

		// The end of a frame may end its call.
		if f.left == 0 && (f.typ == frameReset || f.flags&flagEndStream != 0 && f.typ <= frameHeaders) {
			if s, ok := c.streams[f.id]; ok {
				c.total -= streamCost + s.bytes
				delete(c.streams, f.id)
			}
		}
	}
}

// noteFrame handles the beginning of a frame of the client.
func (c *watchedConn) opens(f *frames) {
	if f.typ == frameHeaders && f.id > c.last {
		c.last = f.id
		if f.flags&flagEndStream == 0 {
			c.streams[f.id] = inbound{since: time.Now()}
			c.total += streamCost
		}
	}
	if f.typ != frameData {
		return
	}
	if s, ok := c.streams[f.id]; ok {
		s.bytes += frameCost
		c.total += frameCost
		c.streams[f.id] = s
	}
}

// noteData handles a part of the payload of a data frame.
func (c *watchedConn) data(f *frames, p []byte) {
	s, ok := c.streams[f.id]
	if !ok {
		return
	}
	s.bytes += int64(len(p))
	c.total += int64(len(p))
	left := f.left // of the frame, from the start of p

	// Leave out the padding.
	if f.padded {
		f.pad, f.padded = int(p[0]), false
		p = p[1:]
		left--
	}
	if end := left - f.pad; end < len(p) {
		p = p[:max(end, 0)]
	}

	// Follow the messages in the data.
	for len(p) > 0 {
		if s.left > 0 {
			n := min(s.left, int64(len(p)))
			s.left -= n
			p = p[n:]
			s.done = s.left == 0
			continue
		}
		if s.have == 0 && s.done {
			s.since, s.done = time.Now(), false
		}
		n := copy(s.head[s.have:], p)
		s.have += n
		p = p[n:]
		if s.have == len(s.head) {
			s.have = 0
			s.left = int64(binary.BigEndian.Uint32(s.head[1:]))
			s.done = s.left == 0
		}
	}
	c.streams[f.id] = s
}
