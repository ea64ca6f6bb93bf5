//go:build !linux

package engine

import (
	"errors"
	"runtime"
	"time"
)

// PinThread is available on Linux only.
func PinThread(...int) (func(), error) {
	return nil, errors.New("pinning threads to CPUs needs Linux")
}

// RealTime is available on Linux only.
func RealTime() (func(), error) {
	return nil, errors.New("real-time priority needs Linux")
}

// CPUs numbers the CPUs that Go sees.
func CPUs() ([]int, error) {
	out := make([]int, runtime.NumCPU())
	for i := range out {
		out[i] = i
	}
	return out, nil
}

// MemoryBytes is unknown here.
func MemoryBytes() int64 { return 0 }

// ThreadCPU is unknown here.
func ThreadCPU() time.Duration { return 0 }
