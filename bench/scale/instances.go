package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
)

// measured are the kinds that the recorded profile holds, the fastest first.
var measured = []string{"L4", "V100", "T4", "P4"}

// The largest cluster that is asked for.
const (
	manyModels = 30
	manyKinds  = 8
	manyGPUs   = 1000
)

// classes are the SLOs of a model: a name, and how many times as long as its fastest
// batch of one.
var classes = []struct {
	name  string
	times float64
}{{"tight", 5}, {"usual", 8}, {"loose", 14}}

// kindName is the name of device kind k.
func kindName(k int) string {
	if k < len(measured) {
		return measured[k]
	}
	return fmt.Sprintf("%s-%d", measured[k%len(measured)], 1+k/len(measured))
}

// spread is a profile of more models and kinds than were measured. A model beyond
// the measured ones is one of them at another size. A kind beyond the measured
// ones is one of them at another speed, which differs by model and along the
// model.
func spread(p *formats.Profile, seed uint64) *formats.Profile {
	r := rand.New(rand.NewPCG(seed, 5))
	about := func(part float64) float64 { return math.Exp(part * (2*r.Float64() - 1)) }
	speed := make([]float64, manyKinds)
	for k := range speed {
		if speed[k] = 1; k >= len(measured) {
			speed[k] = about(0.6)
		}
	}
	out := *p
	out.Devices, out.Models = nil, nil
	for k := range manyKinds {
		d := formats.ProfileDevice{Device: kindName(k)}
		if at := slices.IndexFunc(p.Devices, func(d formats.ProfileDevice) bool { return d.Device == measured[k%len(measured)] }); at >= 0 {
			d = p.Devices[at]
			d.Device = kindName(k)
		}
		out.Devices = append(out.Devices, d)
	}
	for i := range manyModels {
		from := &p.Models[i%len(p.Models)]
		m, size := *from, 1.0
		if i >= len(p.Models) {
			m.Model = fmt.Sprintf("%s-%d", from.Model, 1+i/len(p.Models))
			size = about(0.7)
		}
		m.Measurements = nil
		for k := range manyKinds {
			times, tilt := size, 0.0
			if k >= len(measured) {
				times *= speed[k] * about(0.2)
				tilt = 0.2 * (2*r.Float64() - 1)
			}
			for _, s := range from.Measurements {
				if s.Device != measured[k%len(measured)] {
					continue
				}
				s.Device = kindName(k)
				s.Blocks = slices.Clone(s.Blocks)
				for b := range s.Blocks {
					along := times * (1 + tilt*(float64(b)/float64(len(s.Blocks))-0.5))
					s.Blocks[b] = s.Blocks[b].Scaled(along, along)
				}
				m.Measurements = append(m.Measurements, s)
			}
		}
		out.Models = append(out.Models, m)
	}
	return &out
}

// inputs returns the documents of pooled pipelines.
func inputs(p *formats.Profile, cluster *formats.Cluster, models formats.WorkloadModels) planner.Inputs {
	return planner.Inputs{Profile: p, Cluster: cluster, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: models}}
}

// many returns 30 models of three SLO classes each on 1,000 GPUs of 8 kinds.
func many(p *formats.Profile, seed uint64) planner.Inputs {
	r := rand.New(rand.NewPCG(seed, 6))
	cluster := &formats.Cluster{Format: formats.FormatCluster}
	for k := range manyKinds {
		cluster.Pools = append(cluster.Pools, pool(k, manyGPUs/manyKinds))
	}
	profile := spread(p, seed)
	var list formats.WorkloadModels
	for i := range profile.Models {
		weight := 0.5 + 1.5*r.Float64()
		for _, c := range classes {
			list = append(list, formats.WorkloadModel{
				Model: profile.Models[i].Model, Class: c.name, SLO: slo(&profile.Models[i], c.times), Weight: weight * (0.3 + 0.7*r.Float64()),
			})
		}
	}
	return inputs(profile, cluster, list)
}

// measuredCluster returns so many devices of each measured kind.
func measuredCluster(count int) *formats.Cluster {
	cluster := &formats.Cluster{Format: formats.FormatCluster}
	for k := range measured {
		cluster.Pools = append(cluster.Pools, pool(k, count))
	}
	return cluster
}

// smallFleet returns all measured models on a few devices of each measured kind, four on a node, with weights as the seed draws
// them; with seed 0 all are alike. SLOs are 1.2 times the recorded ones, which are 5 times a batch of one on the fastest kind.
func smallFleet(p *formats.Profile, count int, seed uint64) planner.Inputs {
	r := rand.New(rand.NewPCG(seed, 8))
	cluster := measuredCluster(count)
	for k := range cluster.Pools {
		cluster.Pools[k].PerNode = 4
	}
	var list formats.WorkloadModels
	for i := range p.Models {
		m := formats.WorkloadModel{Model: p.Models[i].Model, SLO: slo(&p.Models[i], 1.2*5), Weight: 1}
		if seed > 0 {
			m.Weight = 0.3 + 0.7*r.Float64()
		}
		list = append(list, m)
	}
	return inputs(p, cluster, list)
}

// slo is so many times what a batch of one takes on the fastest measured kind, block
// by block.
func slo(m *formats.ProfileModel, times float64) document.SLO {
	least := document.Micros(0)
	for _, s := range m.Measurements {
		if s.Batch != 1 || s.Share != 1 || !slices.Contains(measured, s.Device) {
			continue
		}
		sum := document.Micros(0)
		for _, b := range s.Blocks {
			sum += b.WallUS
		}
		if least == 0 || sum < least {
			least = sum
		}
	}
	return document.SLO{Duration: document.Micros(math.Round(times * float64(least))).D()}
}

// pool is devices of kind k. P4 cannot be shared.
func pool(k, count int) formats.Pool {
	p := formats.Pool{Device: kindName(k), Count: count, MaxShares: 4, PerNode: 1 + k%2, NICGbps: 10}
	if measured[k%len(measured)] == "P4" {
		p.MaxShares = 1
	}
	return p
}

// changed is a problem a little later: by the name of a change, seeded.
func changed(in planner.Inputs, change string, seed uint64) planner.Inputs {
	r := rand.New(rand.NewPCG(seed, 7))
	cluster, workload := *in.Cluster, *in.Workload
	cluster.Pools = slices.Clone(cluster.Pools)
	list := slices.Clone(workload.Section.(formats.WorkloadModels))
	switch change {
	case "weights ±10 %", "weights ±20 %":
		by := 0.1
		if change == "weights ±20 %" {
			by = 0.2
		}
		for i := range list {
			list[i].Weight *= 1 + by*float64(2*r.IntN(2)-1)
		}
	case "SLOs ±10 %":
		for i := range list {
			list[i].SLO.Duration += list[i].SLO.Duration / 10 * time.Duration(2*r.IntN(2)-1)
		}
	case "10 GPUs gone":
		for range 10 {
			cluster.Pools[r.IntN(len(cluster.Pools))].Count--
		}
	}
	workload.Section = list
	in.Cluster, in.Workload = &cluster, &workload
	return in
}

// changes are the names that changed knows.
var changes = []string{"weights ±10 %", "weights ±20 %", "SLOs ±10 %", "10 GPUs gone"}
