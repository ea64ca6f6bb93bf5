package llmserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/engine/llm"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/profiler"
)

// loadRounds is the number of samples of each load time.
const loadRounds = 3

// coldLoad loads the model at the beginning of a run if the server has no model loaded, and returns how long that
// took: a cold load, because the file may come from disk. It returns 0 if that cannot be measured: the server cannot
// load models, one is loaded already, or it only wakes from sleep (Sleeper, Releaser).
func (r *runner) coldLoad(ctx context.Context) (time.Duration, error) {
	s := r.options.Server
	if s.Abilities.Switch == llm.FixedModels {
		return 0, nil
	}
	loaded, err := s.Loaded(ctx)
	if err != nil || len(loaded) > 0 {
		return 0, err
	}
	began := time.Now()
	if err := s.Load(ctx, r.options.Model); err != nil {
		return 0, err
	}
	if s.Abilities.Switch == llm.Sleeper || s.Abilities.Switch == llm.Releaser {
		return 0, nil // it was only asleep
	}
	return time.Since(began), nil
}

// loads measures how long the server takes to load and unload the model, to put it to sleep and wake it, or to swap
// it for another, as far as the server can do that and the options allow. It takes at most its share of the budget.
// Afterwards it has the model answer a short request, so that it is loaded again for the remaining points.
func (r *runner) loads(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(time.Duration(loadsShare*float64(r.options.Budget))))
	defer cancel()
	cycles := []func(context.Context) error{}
	if !r.options.KeepLoaded {
		switch r.options.Server.Abilities.Switch {
		case llm.FixedModels:
		case llm.Sleeper, llm.Releaser:
			cycles = append(cycles, r.sleepTimes)
		default:
			cycles = append(cycles, r.reload)
		}
	}
	if r.options.SwapWith != "" {
		cycles = append(cycles, r.swapTimes)
	}
	for _, cycle := range cycles {
		if err := cycle(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	// Load the model again for the remaining points, whatever ended this.
	restoreCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	_, err := r.options.Server.Complete(restoreCtx, r.prober.request(16, 2), nil)
	if err != nil {
		return fmt.Errorf("after loading and unloading %s: %w", r.options.Model, err)
	}
	return nil
}

// reload measures unloading and loading: it unloads the model and loads it again, until there are enough samples.
// The file is in the host's memory then.
func (r *runner) reload(ctx context.Context) error {
	for len(r.knownSamples[Point{Kind: load}]) < loadRounds {
		r.report(Event{Activity: load})
		began := time.Now()
		if err := r.options.Server.Unload(ctx, r.options.Model); err != nil {
			return err
		}
		unloadedAt := time.Now()
		if err := r.options.Server.Load(ctx, r.options.Model); err != nil {
			return err
		}
		loadedAt := time.Now()
		if err := r.addSample(Point{Kind: unload}, Sample{TookUS: document.Micros(unloadedAt.Sub(began))}); err != nil {
			return err
		}
		if err := r.addSample(Point{Kind: load}, Sample{TookUS: document.Micros(loadedAt.Sub(unloadedAt))}); err != nil {
			return err
		}
	}
	return nil
}

// sleepTimes puts the server to sleep and wakes it. Waking ends with a short answer, which is compared with one
// before the sleep and whose time is subtracted. The first round only gets that earlier answer.
func (r *runner) sleepTimes(ctx context.Context) error {
	isFirst := true
	for len(r.knownSamples[Point{Kind: wake}]) < loadRounds {
		r.report(Event{Activity: sleep})
		began := time.Now()
		if err := r.options.Server.Unload(ctx, r.options.Model); err != nil {
			return err
		}
		asleep := time.Now()
		if err := r.options.Server.Load(ctx, r.options.Model); errors.Is(err, llm.ErrCanary) {
			r.note("sleep", "%v", err)
			return nil
		} else if err != nil {
			return err
		}
		awake := time.Now()
		if isFirst {
			isFirst = false
			continue
		}
		if _, err := r.options.Server.Canary(ctx, llm.Use{Model: r.options.Model}, 8); err != nil {
			return err
		}
		answer := time.Since(awake)
		if err := r.addSample(Point{Kind: sleep}, Sample{TookUS: document.Micros(asleep.Sub(began))}); err != nil {
			return err
		}
		if err := r.addSample(Point{Kind: wake}, Sample{TookUS: document.Micros(max(time.Microsecond, awake.Sub(asleep)-answer))}); err != nil {
			return err
		}
	}
	return nil
}

// swapTimes measures how long the server takes to swap another model for this one when a request comes: it has the
// other model loaded, sends a request for this one, and subtracts the time of the same request when this one is
// loaded.
func (r *runner) swapTimes(ctx context.Context) error {
	other := *r.prober
	other.model = r.options.SwapWith
	for len(r.knownSamples[Point{Kind: swap}]) < loadRounds {
		r.report(Event{Activity: swap})

		// Load the other model by a request. The server may keep both.
		if _, err := other.server.Complete(ctx, other.request(16, 2), nil); err != nil {
			return err
		}
		if loaded, err := r.options.Server.Loaded(ctx); err != nil {
			return err
		} else if slices.Contains(loaded, r.options.Model) {
			r.note("swap", "none, the server keeps %s beside it", r.options.SwapWith)
			return nil
		}

		// Ask this model twice. Only the first request swaps.
		swapped, err := r.prober.server.Complete(ctx, r.prober.request(16, 2), nil)
		if err != nil {
			return err
		}
		answer, err := r.prober.server.Complete(ctx, r.prober.request(16, 2), nil)
		if err != nil {
			return err
		}
		if elapsed := swapped.FirstTokenTime - answer.FirstTokenTime; elapsed > 0 {
			if err := r.addSample(Point{Kind: swap}, Sample{TookUS: document.Micros(elapsed)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// modelLoads returns the medians of the measured times of loading, unloading, sleeping and waking for the profile,
// with a text that says how each was measured. It returns nil if none was.
func (r *runner) modelLoads() *formats.ModelLoads {
	var notes []string

	// medianOf returns the median of an operation's samples, and notes how they were measured.
	medianOf := func(operation, method string) document.Micros {
		list := r.knownSamples[Point{Kind: operation}]
		if len(list) == 0 {
			return 0
		}
		m := profiler.Summarize(nil, elapsedTimes(list)).WallUS
		notes = append(notes, fmt.Sprintf("%s %v (%s, median of %d)", operation, m.D().Round(time.Millisecond/10), method, len(list)))
		return m
	}
	l := &formats.ModelLoads{ColdUS: medianOf(cold, "the first load of a run"), WarmUS: medianOf(load, "its file in the host's memory"), UnloadUS: medianOf(unload, "until its memory is free"),
		SleepUS: medianOf(sleep, "the server's own"), WakeUS: medianOf(wake, "the server's own")}

	// The swap by a request stands for the load if that was not measured.
	if byRequest := medianOf(swap, "a request while another model is loaded"); l.WarmUS == 0 {
		l.WarmUS = byRequest
	}
	if len(notes) == 0 {
		return nil
	}
	l.Source = "measured: " + strings.Join(notes, "; ")
	return l
}
