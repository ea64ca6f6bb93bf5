package engine

import (
	"fmt"
	"runtime"
	"sort"
	"time"

	"golang.org/x/sys/unix"
)

// PinThread ties the calling goroutine to its operating-system thread, and that thread to the given CPUs. The same
// goroutine must call the returned function, which undoes both. Threads that an engine starts while loading
// inherit the set, so pin before Load.
func PinThread(cpus ...int) (unpin func(), err error) {
	var set, oldSet unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	runtime.LockOSThread()
	if err := unix.SchedGetaffinity(0, &oldSet); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("read the thread's CPU set: %w", err)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("pin the thread to CPUs %v: %w", cpus, err)
	}
	return func() {
		// A thread that keeps a narrowed set must not return to Go's pool: it is
		// unlocked only where the old set is back.
		if unix.SchedSetaffinity(0, &oldSet) == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}

// RealTime gives the calling thread priority over all other threads of its CPU except real-time ones, until that
// thread calls undo. Threads that it starts have normal priority. Lock the goroutine to its thread before. The
// kernel reserves a twentieth of the CPU for other threads.
func RealTime() (undo func(), err error) {
	oldAttr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return nil, fmt.Errorf("read the thread's scheduling: %w", err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return nil, fmt.Errorf("real-time priority, which needs root or CAP_SYS_NICE: %w", err)
	}
	return func() { _ = unix.SchedSetAttr(0, oldAttr, 0) }, nil
}

// CPUs lists the CPUs that this process may run on, ascending.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	// Ask for the process's set, not that of the current thread, which may be pinned.
	if err := unix.SchedGetaffinity(unix.Getpid(), &set); err != nil {
		return nil, fmt.Errorf("read the process's CPU set: %w", err)
	}
	var out []int
	for cpu := 0; len(out) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			out = append(out, cpu)
		}
	}
	sort.Ints(out)
	return out, nil
}

// MemoryBytes returns the size of the machine's main memory, or 0 if the kernel does not report it.
func MemoryBytes() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 0
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// ThreadCPU returns the CPU time that the calling thread has used since it started. The difference of two readings
// is the cost of the work between them, if the goroutine is locked to the thread meanwhile.
func ThreadCPU() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
