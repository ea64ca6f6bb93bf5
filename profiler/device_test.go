package profiler

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever the system allows, the thread's priority is afterwards what it was.
func TestRaisePriorityIsUndone(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	undo := raisePriority()
	during, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
	undo()
	after, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil || after != before || during < before {
		t.Errorf("priority %d, then %d, then %d (%v)", before, during, after, err)
	}
}

func TestHostCopyRate(t *testing.T) {
	if r := hostCopyGbps(); r < 1 || r > 10000 {
		t.Errorf("host memory is copied at %v Gbit/s", r)
	}
}
