package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// shown is a run in virtual time.
type shown struct {
	p50, p95 time.Duration
	switches int64
	log      []started
}

// started is a batch as the decision logs of both sides show it.
type started struct {
	at          time.Duration // since the first request
	stage, size int
}

// logService notes the batches that the simulator starts.
type logService struct {
	sim.TickObserver
	now time.Duration
	log []started
}

func (l *logService) ObserveTime(now time.Duration) {
	l.now = now
	l.TickObserver.ObserveTime(now)
}

func (l *logService) RunTime(stage, batch int32) time.Duration {
	l.log = append(l.log, started{l.now, int(stage), int(batch)})
	return l.TickObserver.RunTime(stage, batch)
}

// log lists the batches that were run for real.
func (s *served) log() []started {
	var out []started
	for stage := range s.service.Starts {
		for b, starts := range s.service.Starts[stage] {
			for _, at := range starts {
				out = append(out, started{at, stage, b + 1})
			}
		}
	}
	slices.SortFunc(out, func(a, b started) int { return cmp.Compare(a.at, b.at) })
	return out
}

// apart is where two decision logs part: so many batches are the same from the
// start on. again is the share of the real batches that the simulator starts
// with the same size within a millisecond.
func apart(really, shown []started) (same int, again float64) {
	for same < len(really) && same < len(shown) && really[same].stage == shown[same].stage && really[same].size == shown[same].size {
		same++
	}
	const near = time.Millisecond
	n, from := 0, 0
	for _, r := range really {
		for from < len(shown) && shown[from].at < r.at-near {
			from++
		}
		for k := from; k < len(shown) && shown[k].at <= r.at+near; k++ {
			if shown[k].stage == r.stage && shown[k].size == r.size {
				n++
				break
			}
		}
	}
	return same, float64(n) / float64(max(1, len(really)))
}

// replay is how a run is repeated in virtual time.
type replay uint8

const (
	exactly  replay = iota // the policy hears of requests when it did, and runs take the times of their moments
	drawn                  // recorded times at random; the median time until the policy hears
	promised               // the plan's times, no overhead
)

// simulate repeats a run: the same requests in virtual time.
func (f *family) simulate(ctx context.Context, plan *formats.Plan, run *served, how replay) (*shown, error) {
	out, err := f.replay(ctx, plan, run, how)
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	return out, nil
}

func (f *family) replay(ctx context.Context, plan *formats.Plan, run *served, how replay) (*shown, error) {
	tables, err := policies.Compile(plan)
	if err != nil {
		return nil, err
	}
	list, rows, early, err := f.heard(run, how)
	if err != nil {
		return nil, err
	}
	f.rowsAs(tables, rows)
	pol, err := policies.New(plan.Policy, tables)
	if err != nil {
		return nil, err
	}
	cfg := sim.Config{Tables: tables, Policy: pol, Source: arrivals.Slice(list), NoReport: true}
	recorded := sim.Samples{Runs: run.service.Runs}
	if how == exactly {
		recorded.Starts = since(run.service.Starts, list[0].ArrivedAt-run.service.FirstArrival)
	}
	service, err := sim.RecordedService(tables, recorded, how == drawn, 1)
	if err != nil {
		return nil, err
	}
	log := &logService{TickObserver: service.(sim.TickObserver)}
	switch how {
	case exactly:
		cfg.Service, cfg.Egress = log, run.service.Egress
	case drawn:
		cfg.Service, cfg.Ingress, cfg.Egress = log, run.service.Ingress, run.service.Egress
	}
	var took []time.Duration
	counted := run.answers[run.lead].arrived - run.answers[0].arrived
	cfg.OnCompleted = func(heard, answered time.Duration) {
		if arrived := heard - early[heard]; arrived-(list[0].ArrivedAt-early[list[0].ArrivedAt]) >= counted {
			took = append(took, answered-arrived)
		}
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	return &shown{p50: report.Percentile(took, .5), p95: report.Percentile(took, .95), switches: res.Gears.Switches, log: log.log}, nil
}

// since moves starts to count from a later moment.
func since(starts [][][]time.Duration, later time.Duration) [][][]time.Duration {
	out := make([][][]time.Duration, len(starts))
	for stage := range starts {
		for _, list := range starts[stage] {
			moved := make([]time.Duration, len(list))
			for i, at := range list {
				moved[i] = at - later
			}
			out[stage] = append(out[stage], moved)
		}
	}
	return out
}

// heard lists the requests of a run as the simulator's policy hears of them,
// with the rows that they carry. early is how much earlier a request arrived, by
// its time in the list.
func (f *family) heard(run *served, how replay) (list []arrivals.Request, rows []int, early map[time.Duration]time.Duration, err error) {
	first := run.answers[0].arrived
	early = map[time.Duration]time.Duration{}
	if how != exactly {
		for _, a := range run.answers {
			list, rows = append(list, arrivals.Request{ArrivedAt: a.arrived - first}), append(rows, a.row)
		}
		return list, rows, early, nil
	}
	row := map[time.Duration]int{} // by arrival since the first
	for _, a := range run.answers {
		row[a.arrived-first] = a.row
	}
	for i, arrived := range run.service.Arrivals {
		at := run.service.FirstArrival + arrived + run.service.ArrivalDelays[i]
		if n := len(list); n > 0 && at <= list[n-1].ArrivedAt {
			at = list[n-1].ArrivedAt + 1
		}
		r, ok := row[arrived]
		if !ok {
			return nil, nil, nil, fmt.Errorf("the server knows of a request at %v that nobody sent", arrived)
		}
		list, rows = append(list, arrivals.Request{ArrivedAt: at}), append(rows, r)
		early[at] = at - run.service.FirstArrival - arrived
	}
	return list, rows, early, nil
}
