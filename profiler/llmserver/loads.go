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

// coldLoad loads the model if no model is loaded, and returns how long that took: its file may come from disk.
// Other models of a full server are unloaded when the first request arrives.
func (r *runner) coldLoad(ctx context.Context) (time.Duration, error) {
	s := r.o.Server
	if s.Can.Switch == llm.Fixed {
		return 0, nil
	}
	loaded, err := s.Loaded(ctx)
	if err != nil || len(loaded) > 0 {
		return 0, err
	}
	began := time.Now()
	if err := s.Load(ctx, r.o.Model); err != nil {
		return 0, err
	}
	if s.Can.Switch == llm.Sleeper || s.Can.Switch == llm.Releaser {
		return 0, nil // it was only asleep
	}
	return time.Since(began), nil
}

// loads measures loading and unloading the model, within its share of the budget.
func (r *runner) loads(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(time.Duration(loadsShare*float64(r.o.Budget))))
	defer cancel()
	cycles := []func(context.Context) error{}
	if !r.o.KeepLoaded {
		switch r.o.Server.Can.Switch {
		case llm.Fixed:
		case llm.Sleeper, llm.Releaser:
			cycles = append(cycles, r.nap)
		default:
			cycles = append(cycles, r.reload)
		}
	}
	if r.o.SwapWith != "" {
		cycles = append(cycles, r.swapped)
	}
	for _, cycle := range cycles {
		if err := cycle(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	// Load the model again for the remaining points, whatever ended this.
	back, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	_, err := r.o.Server.Complete(back, r.p.request(16, 2), nil)
	if err != nil {
		return fmt.Errorf("after loading and unloading %s: %w", r.o.Model, err)
	}
	return nil
}

// reload unloads the model and loads it again, when its file is in the host's memory.
func (r *runner) reload(ctx context.Context) error {
	for len(r.have[Point{What: load}]) < loadRounds {
		r.tell(Event{What: load})
		began := time.Now()
		if err := r.o.Server.Unload(ctx, r.o.Model); err != nil {
			return err
		}
		gone := time.Now()
		if err := r.o.Server.Load(ctx, r.o.Model); err != nil {
			return err
		}
		there := time.Now()
		if err := r.put(Point{What: unload}, Sample{TookUS: document.Micros(gone.Sub(began))}); err != nil {
			return err
		}
		if err := r.put(Point{What: load}, Sample{TookUS: document.Micros(there.Sub(gone))}); err != nil {
			return err
		}
	}
	return nil
}

// sleepTimes puts the server to sleep and wakes it. Waking ends with a short answer, which is compared with one
// before the sleep and whose time is subtracted. The first round only gets that earlier answer.
func (r *runner) nap(ctx context.Context) error {
	first := true
	for len(r.have[Point{What: wake}]) < loadRounds {
		r.tell(Event{What: sleep})
		began := time.Now()
		if err := r.o.Server.Unload(ctx, r.o.Model); err != nil {
			return err
		}
		asleep := time.Now()
		if err := r.o.Server.Load(ctx, r.o.Model); errors.Is(err, llm.ErrCanary) {
			r.note("sleep", "%v", err)
			return nil
		} else if err != nil {
			return err
		}
		awake := time.Now()
		if first {
			first = false
			continue
		}
		if _, err := r.o.Server.Canary(ctx, llm.Use{Model: r.o.Model}, 8); err != nil {
			return err
		}
		answer := time.Since(awake)
		if err := r.put(Point{What: sleep}, Sample{TookUS: document.Micros(asleep.Sub(began))}); err != nil {
			return err
		}
		if err := r.put(Point{What: wake}, Sample{TookUS: document.Micros(max(time.Microsecond, awake.Sub(asleep)-answer))}); err != nil {
			return err
		}
	}
	return nil
}

// swapTimes sends a request for the model while the other one is loaded. The time of the request itself is
// subtracted.
func (r *runner) swapped(ctx context.Context) error {
	other := *r.p
	other.model = r.o.SwapWith
	for len(r.have[Point{What: swap}]) < loadRounds {
		r.tell(Event{What: swap})
		if _, err := other.server.Complete(ctx, other.request(16, 2), nil); err != nil {
			return err
		}
		if loaded, err := r.o.Server.Loaded(ctx); err != nil {
			return err
		} else if slices.Contains(loaded, r.o.Model) {
			r.note("swap", "none, the server keeps %s beside it", r.o.SwapWith)
			return nil
		}
		a, err := r.p.server.Complete(ctx, r.p.request(16, 2), nil)
		if err != nil {
			return err
		}
		again, err := r.p.server.Complete(ctx, r.p.request(16, 2), nil)
		if err != nil {
			return err
		}
		if took := a.First - again.First; took > 0 {
			if err := r.put(Point{What: swap}, Sample{TookUS: document.Micros(took)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// modelLoads returns the load times for the profile.
func (r *runner) modelLoads() *formats.ModelLoads {
	var said []string
	take := func(what, how string) document.Micros {
		list := r.have[Point{What: what}]
		if len(list) == 0 {
			return 0
		}
		m := profiler.Summarize(nil, took(list)).WallUS
		said = append(said, fmt.Sprintf("%s %v (%s, median of %d)", what, m.D().Round(time.Millisecond/10), how, len(list)))
		return m
	}
	l := &formats.ModelLoads{ColdUS: take(cold, "the first load of a run"), WarmUS: take(load, "its file in the host's memory"), UnloadUS: take(unload, "until its memory is free"),
		SleepUS: take(sleep, "the server's own"), WakeUS: take(wake, "the server's own")}
	if byRequest := take(swap, "a request while another model is loaded"); l.WarmUS == 0 {
		l.WarmUS = byRequest
	}
	if len(said) == 0 {
		return nil
	}
	l.Source = "measured: " + strings.Join(said, "; ")
	return l
}
