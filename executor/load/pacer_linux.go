package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pacer sleeps until a given time. Go's timers are up to 1 ms late in a process that is otherwise idle, because the
// poller waits in whole milliseconds. A timer of the kernel that the poller watches is not late.
type pacer struct {
	fd   int
	file *os.File
	stop func() bool
	buf  [8]byte
}

// newPacer returns a timer for precise sleeps. When ctx ends, a sleep ends early.
func newPacer(ctx context.Context) (*pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a timer: %w", err)
	}
	p := &pacer{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}
	p.stop = context.AfterFunc(ctx, func() {
		// This wakes a sleeper. An error means that the file is closed already.
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	})
	return p, nil
}

// sleep waits for d on a kernel timer, which is more precise than Go's. It returns false if the context has ended.
func (p *pacer) sleep(d time.Duration) (bool, error) {
	if d <= 0 {
		return true, nil
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(p.fd, 0, &spec, nil); err != nil {
		return false, fmt.Errorf("setting a timer: %w", err)
	}
	n, err := p.file.Read(p.buf[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("waiting for a timer: %w", err)
	case n != 8 || binary.NativeEndian.Uint64(p.buf[:]) == 0:
		return false, fmt.Errorf("waiting for a timer: read %d bytes", n)
	}
	return true, nil
}

func (p *pacer) close() error {
	p.stop()
	return p.file.Close()
}
