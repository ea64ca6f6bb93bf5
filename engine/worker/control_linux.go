package worker

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control is a worker's end of the control socket.
type control struct {
	fd            int // the socket
	decoder       Decoder
	descriptorBuf []byte // receives messages with descriptors
	fds           []int  // descriptors received and not yet claimed by a frame
	outFrame      []byte // the frame being written
	writeMu       sync.Mutex

	// ownsProcess says that the process does nothing but serve this socket. Once runs begin, it waits for commands
	// without telling Go's scheduler, see beSteady.
	ownsProcess, steady bool
	msg                 unix.Msghdr // arguments of recvmsg in the steady state, kept so that it allocates nothing
	iov                 unix.Iovec
}

// receive waits for bytes on the socket and adds them to the decoder, and the descriptors that come with them to s.fds.
// It returns io.EOF if the parent has ended.
func (s *control) receive() error {
	if s.descriptorBuf == nil {
		s.descriptorBuf = make([]byte, unix.CmsgSpace(16*4))
	}

	// Read bytes, and take the descriptors that come with them.
	for {
		n, oobn, flags, err := s.recvmsg(s.decoder.Space())
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			if err == unix.ECONNRESET {
				return io.EOF
			}
			return fmt.Errorf("read control socket: %w", err)
		}
		if oobn > 0 {
			if flags&unix.MSG_CTRUNC != 0 {
				return fmt.Errorf("%w: too many descriptors at once", ErrProtocol)
			}
			if err := s.takeDescriptors(s.descriptorBuf[:oobn]); err != nil {
				return err
			}
		}
		if n == 0 {
			return io.EOF
		}
		s.decoder.MarkFilled(n)
		return nil
	}
}

// recvmsg reads from the socket into buf and s.descriptorBuf. It returns the bytes read into each, and the message's
// flags. In the steady state it makes the system call without telling Go's scheduler, see beSteady.
func (s *control) recvmsg(buf []byte) (n, oobn, flags int, err error) {
	if !s.steady {
		n, oobn, flags, _, err = unix.Recvmsg(s.fd, buf, s.descriptorBuf, unix.MSG_CMSG_CLOEXEC)
		return n, oobn, flags, err
	}
	s.iov.Base = &buf[0]
	s.iov.SetLen(len(buf))
	s.msg = unix.Msghdr{Iov: &s.iov, Control: &s.descriptorBuf[0]}
	s.msg.SetIovlen(1)
	s.msg.SetControllen(len(s.descriptorBuf))
	r, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msg)), unix.MSG_CMSG_CLOEXEC)
	if errno != 0 {
		return 0, 0, 0, errno
	}
	return int(r), int(s.msg.Controllen), int(s.msg.Flags), nil
}

// beSteady begins the steady state of a process that does nothing but run. A swap ends it, and it begins again
// after the last swap. collected says that memory was collected just before.
//
// A goroutine that blocks in an ordinary system call leaves Go's scheduler idle, and every wake-up then starts a
// millisecond of polling by its monitor thread: about 50 wake-ups, which cost several times as much as a small
// run. So the loop blocks in a raw system call, during which the scheduler takes it for running. Such a goroutine
// cannot be stopped for a garbage collection. Hence the collector is off, unless memory grows far beyond what
// set-up took. Runs allocate nothing.
func (s *control) beSteady(collected bool) {
	if !collected {
		runtime.GC()
	}
	debug.SetGCPercent(-1)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(int64(m.Sys) + 256<<20)
	s.steady = true
}

// relax ends the steady state, because loading stages needs the garbage collector.
func (s *control) relax() {
	if s.steady {
		s.steady = false
		debug.SetGCPercent(100)
	}
}

// takeDescriptors adds the descriptors in a control message (oob) to s.fds.
func (s *control) takeDescriptors(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: control message: %v", ErrProtocol, err)
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return fmt.Errorf("%w: descriptors: %v", ErrProtocol, err)
		}
		s.fds = append(s.fds, fds...)
	}
	return nil
}

// descriptor takes the first of the file descriptors that came with messages, for a frame of type t that needs one.
func (s *control) descriptor(t Type) (int, error) {
	if len(s.fds) == 0 {
		return -1, fmt.Errorf("%w: %s frame without descriptor", ErrProtocol, t)
	}
	fd := s.fds[0]
	s.fds = s.fds[1:]
	return fd, nil
}

// sendFrame writes s.outFrame to the socket.
func (s *control) sendFrame() error {
	err := s.write(s.outFrame)
	s.outFrame = s.outFrame[:0]
	return err
}

// write writes all bytes to the socket. It returns io.EOF if the parent has ended. The thread of swaps writes beside
// the loop.
func (s *control) write(b []byte) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	for len(b) > 0 {
		n, err := unix.Write(s.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EPIPE || err == unix.ECONNRESET {
			return io.EOF
		}
		if err != nil {
			return fmt.Errorf("write control socket: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// answer sends the parent a frame with a JSON document.
func (s *control) answer(t Type, doc any) error {
	var err error
	if s.outFrame, err = appendJSON(s.outFrame[:0], t, doc); err != nil {
		return err
	}
	return s.sendFrame()
}
