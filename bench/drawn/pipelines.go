package drawn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
)

// Problem is a drawn problem with its name.
type Problem struct {
	Name   string
	Inputs planner.Inputs
	Values map[string]any // options of the default plan
	Rated  bool           // the objective is a rate
	// Explicit are the flags that plans by default are compared with.
	Explicit []map[string]any
}

// Default holds the options that the command line takes if no flag is set.
var Default = map[string]any{"margin": planner.Auto}

// batches are those that drawn profiles measure.
var batches = []int{1, 2, 4, 8, 16}

// sizes are the fleets that are drawn from: devices by kind.
var sizes = []struct {
	name    string
	devices []int
}{
	{"cpu", []int{1}}, {"1", []int{1}}, {"2", []int{2}}, {"1+3", []int{1, 3}}, {"4", []int{4}}, {"4+8", []int{4, 8}}, {"10+20", []int{10, 20}},
	{"25+75", []int{25, 75}}, {"20+30+50", []int{20, 30, 50}},
}

// Pools draws a problem of pools. Seeds go round the sizes of fleets.
func Pools(seed uint64) Problem {
	r := rand.New(rand.NewPCG(seed, 1))
	size := sizes[seed%uint64(len(sizes))]
	cpu := size.name == "cpu"
	p := Problem{Values: Default, Rated: true, Name: fmt.Sprintf("pool %d, devices %s", seed, size.name)}
	cluster := &formats.Cluster{Format: formats.FormatCluster}
	profile := &formats.Profile{Format: formats.FormatProfile}
	speeds := []float64{1, 1.8 + r.Float64(), 3 + 3*r.Float64()}
	for k, count := range size.devices {
		pool := formats.Pool{Device: fmt.Sprintf("kind%d", k), Count: count, MaxShares: 1, PerNode: 1 + r.IntN(4), NICGbps: 5 + 20*r.Float64(), USDPerHour: 2 / speeds[k]}
		if cpu {
			pool = formats.Pool{Device: "cpu-1", Count: count, Sharing: formats.SharingTime}
		}
		cluster.Pools = append(cluster.Pools, pool)
		profile.Devices = append(profile.Devices, formats.ProfileDevice{Device: pool.Device})
	}
	devices := 0
	for _, n := range size.devices {
		devices += n
	}
	models := 1 + r.IntN(4)
	if !cpu {
		models = min(models, devices)
	}
	var asked formats.WorkloadModels
	for m := range models {
		model, slowest := Model(r, fmt.Sprintf("model%d", m), cluster, speeds)
		profile.Models = append(profile.Models, model)
		times := []float64{2.5, 4, 8, 16}[r.IntN(4)]
		if cpu {
			times *= 1 + float64(models)
		}
		asked = append(asked, formats.WorkloadModel{Model: model.Model, SLO: document.SLO{Duration: time.Duration(times * float64(slowest)).Round(time.Microsecond)},
			Percentile: "p99", Weight: 0.5 + r.Float64()})
	}
	p.Inputs = planner.Inputs{Profile: profile, Cluster: cluster, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: asked}}
	for _, margin := range []any{0.0, 0.1, 0.2, 0.4} {
		for _, batch := range []int{1, 2, 4, 0} {
			for _, rounding := range []string{"slot", "fractional"} {
				p.Explicit = append(p.Explicit, map[string]any{"margin": margin, "max-batch": batch, "gpu-rounding": rounding})
			}
		}
		p.Explicit = append(p.Explicit, map[string]any{"margin": margin, "algorithm": "np"})
	}
	p.Explicit = append(p.Explicit, map[string]any{"margin": planner.Auto, "batch-build": 1.3}, map[string]any{"margin": planner.Auto, "gpu-rounding": "fractional"},
		map[string]any{"margin": planner.Auto, "algorithm": "np"})
	return p
}

// graphs of applications: after which modules each one comes. "branch" takes one of two ways.
var graphs = []struct {
	name  string
	after [][]string
}{
	{"chain of two", [][]string{{}, {"m0"}}}, {"chain of three", [][]string{{}, {"m0"}, {"m1"}}}, {"fork", [][]string{{}, {"m0"}, {"m0"}}},
	{"branch", [][]string{{}, {"m0"}, {"m0"}}}, {"diamond", [][]string{{}, {"m0"}, {"m0"}, {"m1", "m2"}}},
}

// Applications draws an application of two to four modules on 4 to 100 devices. Its SLO is 3 to 12 times its longest path alone on the fastest kind.
func Applications(seed uint64) Problem {
	r := rand.New(rand.NewPCG(seed, 2))
	large := sizes[4:]
	size, graph := large[seed%uint64(len(large))], graphs[r.IntN(len(graphs))]
	cluster := &formats.Cluster{Format: formats.FormatCluster}
	profile := &formats.Profile{Format: formats.FormatProfile}
	speeds := []float64{1, 1.8 + r.Float64(), 3 + 3*r.Float64()}
	for k, count := range size.devices {
		pool := formats.Pool{Device: fmt.Sprintf("kind%d", k), Count: count, MaxShares: 1, PerNode: 1, NICGbps: 10}
		cluster.Pools = append(cluster.Pools, pool)
		profile.Devices = append(profile.Devices, formats.ProfileDevice{Device: pool.Device})
	}
	application := formats.Application{Name: "app", Percentile: "p99", Weight: 1}
	took, longest := map[string]time.Duration{}, time.Duration(0)
	for i, after := range graph.after {
		name := fmt.Sprint("m", i)
		model, alone := Model(r, name, cluster, speeds)
		profile.Models = append(profile.Models, model)
		application.Modules = append(application.Modules, formats.Module{Name: name, Model: name, Predecessors: after})
		before := time.Duration(0)
		for _, other := range after {
			before = max(before, took[other])
		}
		took[name] = before + alone
		longest = max(longest, took[name])
	}
	if graph.name == "branch" {
		chance := 0.2 + 0.6*r.Float64()
		application.Modules[0].Branches = []formats.Branch{{Targets: []string{"m1"}, Probability: chance}, {Targets: []string{"m2"}, Probability: 1 - chance}}
	}
	times := []float64{3, 5, 8, 12}[r.IntN(4)]
	application.SLO = document.SLO{Duration: time.Duration(times * float64(longest)).Round(time.Microsecond)}
	p := Problem{Values: Default, Rated: true, Name: fmt.Sprintf("application %d, %s, devices %s", seed, graph.name, size.name)}
	p.Inputs = planner.Inputs{Profile: profile, Cluster: cluster, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{application}}}
	for _, margin := range []any{0.0, 0.1, 0.2, 0.4} {
		for _, batch := range []int{1, 2, 4, 0} {
			p.Explicit = append(p.Explicit, map[string]any{"margin": margin, "max-batch": batch})
		}
	}
	return p
}

// Model draws a model of up to eight blocks, and returns what it takes at batch 1 on the
// fastest kind. A batch costs a part that does not depend on its size.
func Model(r *rand.Rand, name string, cluster *formats.Cluster, speeds []float64) (formats.ProfileModel, time.Duration) {
	m := formats.ProfileModel{Model: name}
	blocks, total := 2+r.IntN(7), math.Exp(math.Log(2)+r.Float64()*math.Log(20)) // ms
	part := make([]float64, blocks)
	sum := 0.0
	for b := range part {
		part[b] = 0.3 + r.Float64()
		sum += part[b]
	}
	for b := range part {
		block := formats.Block{Name: fmt.Sprint(name, "/", b), WeightBytes: 1 << 20}
		if b+1 < blocks {
			block.Cut = []formats.TensorInfo{{Name: fmt.Sprint("t", b), DType: "FP32", Shape: []int64{-1, 9}}}
			block.CutBytesFP32 = formats.CutBytes(40_000 + r.IntN(400_000))
			block.CutBytesFP16 = block.CutBytesFP32 / 2
			block.FP16 = &formats.FP16Check{Top1Agreement: 1, Samples: 100}
		}
		m.Blocks = append(m.Blocks, block)
	}
	fixed := 0.1 + 0.6*r.Float64()
	for k, pool := range cluster.Pools {
		tilt := 0.6 * (r.Float64() - 0.5)
		for _, batch := range batches {
			one := formats.Measurement{Device: pool.Device, Share: 1, Batch: batch, MemoryBytes: 20 << 20}
			whole := document.Micros(0)
			for b := range part {
				along := 1 + tilt*(float64(b)/float64(blocks)-0.5)
				us := document.Micros(math.Round(1e6 * total * part[b] / sum * speeds[k] * along * (fixed + (1-fixed)*float64(batch))))
				one.Blocks = append(one.Blocks, formats.Latency{WallUS: us})
				whole += us
			}
			one.WholeModel = &formats.Latency{WallUS: whole}
			m.Measurements = append(m.Measurements, one)
		}
	}
	return m, time.Duration(total * float64(time.Millisecond))
}
