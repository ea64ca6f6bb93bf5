package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
)

// instance is a problem that should have no plan.
type instance struct {
	name string // kind, objective and what was broken
	in   planner.Inputs
	opt  planner.Options
	bad  string // what the message of bad input has to name; empty if it is infeasible
}

// between draws from a range, evenly in logarithms.
func between(r *rand.Rand, lo, hi float64) float64 {
	return lo * math.Exp(r.Float64()*math.Log(hi/lo))
}

// one draws from a list.
func one[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// micros is milliseconds as documents have them.
func micros(ms float64) document.Micros { return document.Micros(math.Round(ms * 1e6)) }

var batches = []int{1, 2, 4, 8}

// measured is a model that was measured on kinds of devices: a fixed part and one
// per sample, over blocks.
func measured(r *rand.Rand, name string, kinds []string, blocks int, memory int64) formats.ProfileModel {
	m := formats.ProfileModel{Model: name}
	parts, sum := make([]float64, blocks), 0.0
	for b := range parts {
		parts[b] = 0.7 + 0.6*r.Float64()
		sum += parts[b]
		block := formats.Block{Name: fmt.Sprint(name, "/", b), WeightBytes: memory / int64(blocks)}
		if b+1 < blocks {
			block.Cut = []formats.TensorInfo{{Name: fmt.Sprint("t", b), DType: "FP32", Shape: []int64{-1, 9}}}
			block.CutBytesFP32 = formats.KnownCut(int64(between(r, 1e4, 1e6)))
		}
		m.Blocks = append(m.Blocks, block)
	}
	fixed, each := between(r, 0.5, 3), between(r, 0.3, 3)
	for k, kind := range kinds {
		speed := between(r, 0.7, 1.4) * float64(1+k)
		for _, batch := range batches {
			whole := speed * (fixed + each*float64(batch))
			me := formats.Measurement{Device: kind, Share: 1, Batch: batch, MemoryBytes: memory, WholeModel: &formats.Latency{WallUS: micros(whole)}}
			for _, part := range parts {
				me.Blocks = append(me.Blocks, formats.Latency{WallUS: micros(whole * part / sum)})
			}
			m.Measurements = append(m.Measurements, me)
		}
	}
	return m
}

// pool draws a problem of pooled pipelines.
func pool(r *rand.Rand) *instance {
	p := &formats.Profile{Format: formats.FormatProfile}
	c := &formats.Cluster{Format: formats.FormatCluster}
	var kinds []string
	nic := one(r, 0.0, 10, 25)
	for k := range 1 + r.IntN(3) {
		kind := []string{"L4", "A10G", "T4"}[k]
		kinds = append(kinds, kind)
		q := formats.Pool{Device: kind, Count: 1 + r.IntN(6), NICGbps: nic, Memory: 1 << 30, USDPerHour: between(r, 0.3, 3), Watts: between(r, 50, 400)}
		if r.IntN(6) == 0 {
			q.Sharing = formats.SharingTime
		}
		c.Pools = append(c.Pools, q)
		p.Devices = append(p.Devices, formats.ProfileDevice{Device: kind})
	}
	blocks := one(r, 1, 3, 6)
	var models formats.WorkloadModels
	for d := range 1 + r.IntN(4) {
		name := fmt.Sprint("m", d)
		p.Models = append(p.Models, measured(r, name, kinds, blocks, int64(between(r, 1e7, 2e8))))
		models = append(models, formats.WorkloadModel{
			Model: name, SLO: document.SLO{Duration: time.Duration(between(r, 20, 200)*1000) * time.Microsecond},
			Weight: one(r, 1, 1, between(r, 0.1, 10)), Percentile: "p99",
		})
	}
	x := &instance{in: planner.Inputs{Profile: p, Cluster: c, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: models}}}
	objective := one(r, "throughput", "throughput", "cost", "power", "gpus")
	x.opt.Set("objective", objective)
	x.opt.Set("gap", 0.999) // that there is a plan counts, not how good it is
	if r.IntN(4) == 0 {
		x.opt.Set("gpu-rounding", "fractional")
	}
	x.name = "pool " + objective
	x.spoil(r, models, objective)
	return x
}

// spoil makes a problem of pooled pipelines infeasible in a way that is drawn.
func (x *instance) spoil(r *rand.Rand, models formats.WorkloadModels, objective string) {
	load := func() { x.opt.Set("min-load", between(r, 200, 20000)/float64(len(models))) }
	rates := func() {
		for i := range models {
			models[i].MinRPS = between(r, 20, 5000)
		}
	}
	tight := func(i int) { models[i].SLO.Duration = time.Duration(between(r, 300, 4000)) * time.Microsecond }
	few := func() {
		for k := range x.in.Cluster.Pools {
			x.in.Cluster.Pools[k].Count = 0
		}
		x.in.Cluster.Pools[0].Count = 1
	}
	if objective != "throughput" {
		x.opt.Set("min-load", between(r, 1, 20)) // what shrinks needs a floor
	}
	way := one(r, "load", "load", "load", "rates", "rates", "slo", "slos", "devices", "memory", "slo and load", "unknown device", "no rate")
	switch way {
	case "load":
		load()
	case "rates":
		rates()
	case "slo":
		tight(r.IntN(len(models)))
	case "slos":
		for i := range models {
			tight(i)
		}
	case "devices":
		few()
	case "memory":
		for k := range x.in.Cluster.Pools {
			x.in.Cluster.Pools[k].Memory = document.Bytes(between(r, 5e6, 2e8))
		}
	case "slo and load":
		tight(r.IntN(len(models)))
		load()
	case "unknown device":
		x.in.Cluster.Pools[0].Device, x.bad = "H9", "H9"
	case "no rate":
		if objective == "throughput" {
			way = "load"
			load()
			break
		}
		x.opt.Set("min-load", 0.0)
		x.bad = "no rate to carry"
	}
	x.name += ", " + way
}
