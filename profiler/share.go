package profiler

import (
	"context"
	"errors"
	"sync"
	"time"

	"inferplan/engine"
)

// Sharer splits a GPU into equal shares, each with a worker process of its own.
type Sharer interface {
	// Open starts v workers on 1/v shares of the device.
	Open(ctx context.Context, d engine.Device, v int) (Shares, error)
}

// Shares is a device split into equal shares.
type Shares interface {
	// Engines returns one engine per share; what they load runs on its share.
	Engines() []engine.Engine
	// Device is what to hand to Load of share i's engine.
	Device(i int) engine.Device
	// Method says how the device is split: mps or time-slicing.
	Method() string
	Close() error
}

// Together makes one run of copies of the same block, one per share, that all
// run at the same time. A share costs what it costs while its neighbours work:
// they share memory bandwidth and caches even where they share no processor.
// What is reported is the mean over the copies.
func Together(copies []func(n int) (engine.Timing, error)) func(n int) (engine.Timing, error) {
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
