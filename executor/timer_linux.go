package executor

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine/worker"
)

// alarm wakes the core at a moment of CLOCK_MONOTONIC. Go's own timers may be
// a millisecond late in an idle process; a timerfd is not.
type alarm struct {
	f  *os.File
	fd int
	at int64 // armed for, 0 when not
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	return &alarm{f: os.NewFile(uintptr(fd), "timer"), fd: fd}, nil
}

// set arms the alarm for a moment, or disarms it with 0.
func (a *alarm) set(at int64) {
	if at == a.at {
		return
	}
	a.at = at
	var spec unix.ItimerSpec
	if at > 0 {
		spec.Value = unix.NsecToTimespec(at)
	}
	// The arguments are valid by construction: this cannot fail.
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}

// run calls wake after every expiry until the alarm is closed.
func (a *alarm) run(wake func()) {
	var b [8]byte
	for {
		if _, err := a.f.Read(b[:]); err != nil {
			return
		}
		wake()
	}
}

func (a *alarm) close() { a.f.Close() }

// monotonicNow is one moment on both clocks.
func monotonicNow() (int64, time.Time) { return worker.Monotonic(), time.Now() }
