package profiler

import (
	"context"
	"errors"
	"sync"
	"time"

	"inferplan/engine"
)

// DeviceSharer splits a GPU into equal shares, each with its own worker process.
type DeviceSharer interface {
	// Open starts v workers on 1/v shares of the device.
	Open(ctx context.Context, d engine.Device, v int) (SharedDevice, error)
}

// SharedDevice is a device split into equal shares.
type SharedDevice interface {
	// Engines returns one engine per share. A block that it loads runs on its share.
	Engines() []engine.Engine
	// Device returns the device to pass to Load of share i's engine.
	Device(i int) engine.Device
	// Method returns how the device is split: mps or time-slicing.
	Method() string
	Close() error
}

// RunTogether combines copies of the same block, one per share, into one run in which all copies run at the same
// time. So a share is timed while its neighbours work: they share memory bandwidth and caches even if they share
// no processor. The result is the mean over the copies.
func RunTogether(copies []func(n int) (engine.Timing, error)) func(n int) (engine.Timing, error) {
	if len(copies) == 1 {
		return copies[0]
	}
	return func(n int) (engine.Timing, error) {
		times := make([]engine.Timing, len(copies))
		errs := make([]error, len(copies))
		var wg sync.WaitGroup
		for i, run := range copies {
			wg.Go(func() { times[i], errs[i] = run(n) })
		}
		wg.Wait()
		sum := engine.Timing{Runs: n}
		for _, t := range times {
			sum.CPU += t.CPU
			sum.Wall += t.Wall
			sum.Host += t.Host
		}
		sum.CPU /= time.Duration(len(copies))
		sum.Wall /= time.Duration(len(copies))
		sum.Host /= time.Duration(len(copies))
		return sum, errors.Join(errs...)
	}
}
