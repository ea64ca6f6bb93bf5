//go:build unix

package cputime

import (
	"syscall"
	"time"
)

// Used returns the CPU time that this process has used, with what was added by Add.
func Used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano()+u.Stime.Nano()) + time.Duration(addedTime.Load())
}
