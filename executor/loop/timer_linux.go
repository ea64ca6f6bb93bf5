package loop

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes the loop at a time of CLOCK_MONOTONIC. Go's own timers may be a millisecond late in an idle process; a
// timerfd is not.
type alarm struct {
	f      *os.File
	fd     int
	setFor int64 // time it is set for, in ns; 0 if none

	hasExpired atomic.Bool
}

// newAlarm returns an alarm that is not set.
func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	return &alarm{f: os.NewFile(uintptr(fd), "timer"), fd: fd}, nil
}

// wakeBy makes sure that the loop wakes no later than `latest`, a time in ns of the kernel's monotonic clock, as is now.
// An alarm that is set for an earlier time stays as it is: policies move their timers with every arrival, and a needless
// wake-up costs less than a system call each time. setFor 0 stands for an alarm that is not set.
func (a *alarm) wakeBy(latest, now int64) {
	if a.hasExpired.Swap(false) {
		a.setFor = 0
	}
	if a.setFor > now && a.setFor <= latest {
		return
	}
	a.setFor = latest
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(latest)}
	// The arguments are valid by construction: this cannot fail.
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}

// callOnExpiry waits for expiries of the kernel's timer on a goroutine of its own. After each it notes the expiry and
// calls wake, which starts a round. It returns when the alarm's file is closed.
func (a *alarm) callOnExpiry(wake func()) {
	var b [8]byte
	for {
		if _, err := a.f.Read(b[:]); err != nil {
			return
		}
		a.hasExpired.Store(true)
		wake()
	}
}

func (a *alarm) close() { a.f.Close() }

// monotonicNow returns one moment on both clocks. CLOCK_MONOTONIC is read last, so that an alarm is never early on Go's
// clock.
func monotonicNow() (int64, time.Time) {
	now := time.Now()
	var ts unix.Timespec
	// The clock is there: this cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano(), now
}
