package main

import (
	"context"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/sim"
)

// tester simulates plans with seeds that no plan was made with. A plan holds rates in proportion
// to the weights of its models if every model attains what is asked at them.
type tester struct {
	runs       int
	seed       uint64
	attainment float64
	requests   float64 // about, in a run
}

// step is the resolution of the rate that a plan holds, as a share of it.
const step = 0.0025

// rate is the highest rps per weight that a plan holds.
func (h *tester) rate(ctx context.Context, plan *formats.Plan) (float64, error) {
	lo, hi, at := 0.0, math.Inf(1), plan.Objective.Value
	if c := plan.Certified; c != nil && c.LoadFactor > 0 {
		at *= c.LoadFactor
	}
	width := 0.02
	for hi > lo*(1+step) && at > 1e-9 {
		worst, err := h.attained(ctx, plan, at)
		if err != nil {
			return 0, err
		}
		if worst >= h.attainment {
			lo = at
		} else {
			hi = at
		}
		switch {
		case math.IsInf(hi, 1):
			at *= 1 + width
			width *= 2
		case lo == 0:
			at /= 1 + width
			width *= 2
		default:
			at = (lo + hi) / 2
		}
	}
	return lo, nil
}

// attained is the least attainment of the models where each has its weight times so many rps.
func (h *tester) attained(ctx context.Context, plan *formats.Plan, perWeight float64) (float64, error) {
	var rates []float64
	for _, served := range plan.Served() {
		rates = append(rates, perWeight*max(served.Weight, 1e-9))
	}
	return h.least(ctx, plan, rates)
}

// statedRates is the least attainment of the models at the rates that the plan states.
func (h *tester) statedRates(ctx context.Context, plan *formats.Plan) (float64, error) {
	var rates []float64
	for _, served := range plan.Served() {
		rates = append(rates, served.RPS)
	}
	return h.least(ctx, plan, rates)
}

// least is the least attainment of the models at rates.
func (h *tester) least(ctx context.Context, plan *formats.Plan, rates []float64) (float64, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, rps := range rates {
		sum += rps
	}
	sc.Rates = rates
	sc.Seed = h.seed
	sc.Duration = time.Duration(min(max(h.requests/sum, 5), 600) * float64(time.Second))
	sc.Warmup = sc.Duration / 10
	res, err := sim.Replicate(ctx, sc, h.runs)
	if err != nil {
		return 0, err
	}
	return slices.MinFunc(res.Report.Models, func(a, b formats.ModelReport) int {
		if a.Attainment < b.Attainment {
			return -1
		}
		return 1
	}).Attainment, nil
}
