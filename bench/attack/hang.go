package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
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

// hanging holds the effects of one stop of a worker.
type hanging struct {
	longest  time.Duration // until a request was answered
	declared time.Duration // from the stop until the worker was killed
	back     time.Duration // from then until another one ran
	others   int           // requests of models on other devices
	unharmed int           // of those, in time
	answers  map[string]int
	lost     int
	idle     bool // nothing ran on the worker, so that nobody could know
}

// hang stops a worker in the midst of load, again and again, under each SLO.
func (a *attack) hang(ctx context.Context) (out []figures.Figure, err error) {
	for _, h := range hangs {
		list, err := hangUnder(ctx, a, h.infer, h.slo, h.answer)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

func hangUnder(ctx context.Context, a *attack, infer, hangSLO, hangAnswer time.Duration) ([]figures.Figure, error) {
	path, err := a.smallPlan(ctx, 4, infer, hangSLO)
	if err != nil {
		return nil, err
	}
	plan, err := formats.ReadPlan(path)
	if err != nil {
		return nil, err
	}
	rate, err := promised(path)
	if err != nil {
		return nil, err
	}
	s, err := a.startServer(ctx, path)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	var worst hanging
	worst.answers = map[string]int{}
	rounds, idle := max(a.count(200)/20, 1), 0
	for range rounds {
		h, err := a.stopOne(ctx, s, plan, min(rate/2, 200), hangSLO)
		if err != nil {
			return nil, err
		}
		if h.idle {
			idle++
		}
		worst.longest, worst.declared, worst.back = max(worst.longest, h.longest), max(worst.declared, h.declared), max(worst.back, h.back)
		worst.others, worst.unharmed, worst.lost = worst.others+h.others, worst.unharmed+h.unharmed, worst.lost+h.lost
		for answer, n := range h.answers {
			worst.answers[answer] += n
		}
	}
	share := float64(worst.unharmed) / float64(max(worst.others, 1))
	a.printf("hang: %d workers stopped (%d idle); longest answer %v, declared after %v, back after %v; %d of %d requests of other devices in time; %v, %d lost\n", rounds, idle,
		worst.longest, worst.declared, worst.back, worst.unharmed, worst.others, worst.answers, worst.lost)
	under := fmt.Sprintf("stopped worker, SLO %v: ", hangSLO)
	of := fmt.Sprintf("%d stops, %d of a worker that had nothing to do, SLO %v, half the planned rate or 200/s", rounds, idle, hangSLO)
	return []figures.Figure{
		{Claim: under + "longest time until a request was answered", Source: source, Asked: fmt.Sprintf("at most %g", hangAnswer.Seconds()), Measured: round(worst.longest.Seconds()), Unit: "s", Holds: figures.If(worst.longest <= hangAnswer && worst.lost == 0),
			Note: fmt.Sprintf("%s; answers: %s", of, listed(worst.answers))},
		{Claim: under + "requests of models on other devices in time", Source: source, Asked: "unharmed", Measured: round(100 * share), Unit: "%", Holds: figures.If(share >= .99), Note: fmt.Sprintf("of %d", worst.others)},
		{Claim: under + "time from when it is declared hung until it serves again", Source: source, Asked: "at most 3", Measured: round(worst.back.Seconds()), Unit: "s", Holds: figures.If(worst.back <= hangBack && idle < rounds),
			Note: fmt.Sprintf("declared after %.2f s at most", worst.declared.Seconds())},
	}, nil
}

// stopOne stops a worker while requests come, until it is back.
func (a *attack) stopOne(ctx context.Context, s *server, plan *formats.Plan, rate float64, slo time.Duration) (*hanging, error) {
	h := &hanging{}
	device, from := -1, len(s.lines())
	var failure error
	shots := openLoop(s.http, []string{"m", "words"}, rate, func(start time.Time) {
		time.Sleep(500 * time.Millisecond)
		pids := s.workers()
		if len(pids) == 0 {
			failure = errors.New("found no workers")
			return
		}
		pid := pids[int(a.seed+uint64(from))%len(pids)]
		stopped := time.Now()
		failure = syscall.Kill(pid, syscall.SIGSTOP)
		hangs, err := s.said(ctx, from, 15*time.Second, func(line string) bool { return strings.Contains(line, "worker hangs and is killed") })
		if err != nil { // nothing ran there, so that nobody waits for it
			h.idle = true
			failure = errors.Join(failure, syscall.Kill(pid, syscall.SIGCONT))
			return
		}
		declared := time.Now()
		h.declared = declared.Sub(stopped)
		device, _ = strconv.Atoi(field(hangs, "device"))
		if _, err = s.said(ctx, from, 30*time.Second, func(line string) bool { return strings.Contains(line, "worker back") }); err != nil {
			failure = errors.Join(failure, err)
		}
		h.back = time.Since(declared)
		time.Sleep(time.Second)
	})
	if failure != nil {
		return nil, fmt.Errorf("stopping a worker: %w\n%s", failure, strings.Join(s.lines()[from:], "\n"))
	}
	h.answers, h.lost = endings(shots)
	harmed := modelsOn(plan, device)
	for _, shot := range shots {
		h.longest = max(h.longest, shot.took)
		if !harmed[shot.model] {
			h.others++
			if shot.answer == "200" && shot.took <= slo {
				h.unharmed++
			}
		}
	}
	return h, s.settled(ctx)
}

// modelsOn are the models of which a part is on a device.
func modelsOn(plan *formats.Plan, device int) map[string]bool {
	out := map[string]bool{}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		for j := range d.Pipelines {
			for k := range d.Pipelines[j].Stages {
				for _, p := range d.Pipelines[j].Stages[k].Placement {
					if device >= p.FirstDevice && device < p.FirstDevice+(p.Replicas+p.PerDevice-1)/max(p.PerDevice, 1) {
						out[d.Model] = true
					}
				}
			}
		}
	}
	return out
}

// field is the value of a key in a line of the log.
func field(line, key string) string {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}

func listed(answers map[string]int) string {
	var list []string
	for _, answer := range sortedKeys(answers) {
		list = append(list, fmt.Sprintf("%d %s", answers[answer], strings.TrimSpace(answer)))
	}
	return strings.Join(list, ", ")
}
