package verify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// compareTails simulates every gear (cascade of a range of rates) alone at its upper edge, with the batch times of the
// plan and with those of today, on the same arrivals, and returns both tail latencies of each in microseconds. If
// latencies have not changed, it returns nothing.
func (c *gearChecker) compareTails(ctx context.Context, g *gearsToday) ([]kind.FigurePair, error) {
	if !g.latenciesChanged {
		return nil, nil
	}
	var samples []kind.FigurePair
	for i := range c.gear.Gears {
		r := &c.gear.Gears[i]
		if g.gears[i].loadToday > 1 {
			continue // its tail grows forever, and its load is a finding
		}
		var tail [2]time.Duration
		for k, times := range [2][][][]time.Duration{g.plannedTimes, g.todayTimes} {
			var err error
			if tail[k], err = gearTail(ctx, c.Plan, i, times); err != nil {
				return nil, fmt.Errorf("simulating gear %d of the plan: %w", i, err)
			}
		}
		samples = append(samples, kind.FigurePair{Metric: "p99", Subject: fmt.Sprintf("cascade at %.6g rps (%s)", r.ToQPS, c.gear.Percentile), Old: recompute.Micros(tail[0]), New: recompute.Micros(tail[1]), Unit: "us"})
	}
	return samples, nil
}

// tablesWithTimes returns the run-time tables of a plan with other batch times, planned ones or those of today: times
// has them by model, stage of its pipelines, and batch size from 1, in the order of the tables' stages. Mean times
// change by the same factor.
func tablesWithTimes(p *formats.Plan, times [][][]time.Duration) (*policy.Tables, error) {
	t, err := policies.Compile(p)
	if err != nil {
		return nil, err
	}
	stage := 0
	for _, stages := range times {
		for _, list := range stages {
			tableStage := &t.Stages[stage]
			mean := make([]time.Duration, len(tableStage.Mean)) // means change by the same factor as undisturbed times
			for b := range mean {
				mean[b] = time.Duration(float64(tableStage.Mean[b]) * float64(list[b]) / float64(tableStage.Infer[b]))
			}
			if tableStage.Infer = list; tableStage.Mean != nil {
				tableStage.Mean = mean
			}
			stage++
		}
	}
	return t, nil
}

// gearTail simulates one gear of a plan, by index, alone at the upper edge of its range, with batch times by model and
// stage, and returns the latency at the plan's percentile. The first quarter of the run, in which queues fill, does not
// count.
func gearTail(ctx context.Context, p *formats.Plan, gear int, times [][][]time.Duration) (time.Duration, error) {
	tables, err := tablesWithTimes(p, times)
	if err != nil {
		return 0, err
	}

	// Tables with this gear only.
	section := formats.GearOf(p)
	rate := section.Gears[gear].ToQPS
	gearTables := *policygear.TablesOf(tables)
	gearTables.Gears, gearTables.MaxQPS = gearTables.Gears[gear:gear+1], rate
	tables.KindTables = &gearTables
	tables.Models[0].RPS = rate

	// Arrivals, for at least 8 s, 20 SLOs and 2000 requests.
	slo := section.SLOUS.D()
	length := time.Duration(max(8, 20*slo.Seconds(), 2000/rate) * float64(time.Second))
	src, err := arrivals.Process(nil, seeded.New(p.Seed, "check/tail"), 0, rate, length)
	if err != nil {
		return 0, err
	}
	return tailOfRun(ctx, p, sim.Config{Tables: tables, Source: src, Duration: length}, length/4)
}

// tailOfRun simulates a plan as configured, with the plan's policy, and returns the latency at the plan's percentile
// over all requests that arrive from firstArrival on. No request is refused, so the tail is that of all. It sets the
// policy and the times of requests in cfg.
func tailOfRun(ctx context.Context, p *formats.Plan, cfg sim.Config, firstArrival time.Duration) (time.Duration, error) {
	opt, err := policygear.ParseOptions(cfg.Tables, p.Policy.Params)
	if err != nil {
		return 0, err
	}
	opt.RefuseLate = false
	cfg.Egress, cfg.FrontEnd = p.RequestOverhead(), p.FrontEndTime()
	if cfg.Policy, err = policygear.New(cfg.Tables, opt); err != nil {
		return 0, err
	}
	var latency []time.Duration
	cfg.NoReport, cfg.OnCompleted = true, func(arrivedAt, answeredAt time.Duration) {
		if arrivedAt >= firstArrival {
			latency = append(latency, answeredAt-arrivedAt)
		}
	}
	if _, err := sim.Run(ctx, cfg); err != nil {
		return 0, fmt.Errorf("simulating the plan: %w", err)
	}
	slices.Sort(latency)
	return report.Percentile(latency, cfg.Tables.Models[0].Percentile), nil
}
