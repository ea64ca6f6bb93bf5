package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/instrument"
	"inferplan/formats"
)

// What was asked of a worker that is stopped: with a run and an SLO, an answer within the
// SLO and another one, and half an SLO more until somebody looks, but a quarter more for
// what a busy machine adds.
var hangs = []struct{ infer, slo, answer time.Duration }{
	{50 * time.Millisecond, 800 * time.Millisecond, 1800 * time.Millisecond},
	{5 * time.Millisecond, 100 * time.Millisecond, 275 * time.Millisecond},
}

const hangBack = 3 * time.Second

// hanging holds the effects of stops of workers.
type hanging struct {
	longest  time.Duration // until a request was answered
	declared time.Duration // from the stop until the worker was killed
	back     time.Duration // from then until another one ran
	others   int           // requests of models on other devices
	unharmed int           // of those, in time
	answers  tally
	lost     int
	idle     int // stops of a worker on which nothing ran, so that nobody could know
}

// hang stops a worker in the midst of load, again and again, under each SLO.
func (a *attack) hang(r *instrument.Run) error {
	for _, h := range hangs {
		path, plan, err := a.smallPlan(r.Ctx, 4, h.infer, h.slo)
		if err != nil {
			return err
		}
		x, rounds := &hanging{answers: tally{}}, max(a.count(200)/20, 1)
		err = a.whileServing(r.Ctx, path, func(s *server) error {
			for range rounds {
				if err := a.stopOne(r.Ctx, s, plan, h.slo, x); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		share := 100 * float64(x.unharmed) / float64(max(x.others, 1))
		under := fmt.Sprintf("stopped worker, SLO %v: ", h.slo)
		state(r, under+"longest time until a request was answered", fmt.Sprintf("at most %g", h.answer.Seconds()), x.longest.Seconds(), "s", x.longest <= h.answer && x.lost == 0,
			"%d stops, %d of a worker that had nothing to do, SLO %v, half the planned rate or 200/s; answers: %v", rounds, x.idle, h.slo, x.answers)
		state(r, under+"requests of models on other devices in time", "unharmed", share, "%", share >= 99, "of %d", x.others)
		state(r, under+"time from when it is declared hung until it serves again", fmt.Sprintf("at most %g", hangBack.Seconds()), x.back.Seconds(), "s", x.back <= hangBack && x.idle < rounds,
			"declared after %.2f s at most", x.declared.Seconds())
	}
	return nil
}

// stopOne stops a worker while requests come, until it is back, and adds the effects.
func (a *attack) stopOne(ctx context.Context, s *server, plan *formats.Plan, slo time.Duration, x *hanging) (err error) {
	device, from := -1, len(s.Lines())
	says := func(text string) func(string) bool {
		return func(line string) bool { return strings.Contains(line, text) }
	}
	endings := openLoop(ctx, s.HTTP, both, min(promised(plan)/2, 200), func() {
		time.Sleep(500 * time.Millisecond)
		pids := s.workers()
		if len(pids) == 0 {
			err = errors.New("found no workers")
			return
		}
		pid := pids[int(a.seed+uint64(from))%len(pids)]
		stopped := time.Now()
		err = syscall.Kill(pid, syscall.SIGSTOP)
		hangs, herr := s.Await(ctx, from, 15*time.Second, says("worker hangs and is killed"))
		if herr != nil { // nothing ran there, so that nobody waits for it
			x.idle++
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
			return
		}
		declared := time.Now()
		device, _ = strconv.Atoi(field(hangs, "device"))
		_, berr := s.Await(ctx, from, 30*time.Second, says("worker back"))
		err = errors.Join(err, berr)
		x.declared, x.back = max(x.declared, declared.Sub(stopped)), max(x.back, time.Since(declared))
		time.Sleep(time.Second)
	})
	if err != nil {
		return fmt.Errorf("stopping a worker: %w\n%s", err, s.Tail())
	}
	x.lost += x.answers.add(endings)
	harmed := modelsOn(plan, device)
	for _, e := range endings {
		x.longest = max(x.longest, e.took)
		if !harmed[e.model] {
			x.others++
			if e.answer == "200" && e.took <= slo {
				x.unharmed++
			}
		}
	}
	_, err = s.settled(ctx)
	return err
}

// modelsOn returns the models of which a part is on a device.
func modelsOn(plan *formats.Plan, device int) map[string]bool {
	models := map[string]bool{}
	for i := range plan.Deployment {
		for _, pipeline := range plan.Deployment[i].Pipelines {
			for _, stage := range pipeline.Stages {
				for _, p := range stage.Placement {
					if device >= p.FirstDevice && device < p.FirstDevice+(p.Replicas+p.PerDevice-1)/max(p.PerDevice, 1) {
						models[plan.Deployment[i].Model] = true
					}
				}
			}
		}
	}
	return models
}

// field returns the value of a key in a line of the log.
func field(line, key string) string {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}
