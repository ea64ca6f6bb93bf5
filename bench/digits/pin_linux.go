package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepTo keeps all threads of this process, and those to come, on some CPUs.
func keepTo(cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("keeping to CPUs %v: %w", cpus, err)
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("keeping to CPUs %v: %w", cpus, err)
		}
	}
	runtime.GOMAXPROCS(len(cpus))
	return nil
}
