package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/document"
)

// executorRatio serves resnet50 beyond its planned rate, so that the device always has a next batch, and sets the time that these runs take by
// the profile against the time in which they were done. On a GPU the difference has the copies of inputs.
func executorRatio(c *run) {
	plan, _ := c.solve("executor", c.outPath("profile.json"), oneModel("resnet50", "30s"), "count: 1", "--margin", "0", "--max-batch", pick(c, "8", "2"))
	c.drive("executor", c.workPath("models"), "1.3", nil)
	var service struct {
		Runs   [][][]time.Duration `json:"runs_ns"` // by stage and batch size
		Starts [][][]time.Duration `json:"starts_ns"`
	}
	data, err := os.ReadFile(c.workPath("executor-service.json"))
	if c.err != nil || !c.check(errors.Join(err, json.Unmarshal(data, &service))) {
		return
	}
	profiled, first, last := time.Duration(0), time.Duration(math.MaxInt64), time.Duration(0)
	for b, runs := range service.Runs[0] {
		for i, took := range runs {
			start := service.Starts[0][b][i]
			profiled += plan.Deployment[0].Pipelines[0].Stages[0].InferUS[b].D()
			first, last = min(first, start), max(last, start+took)
		}
	}
	ratio := profiled.Seconds() / (last - first).Seconds()
	c.judge("runs by the profile over the time that they took in the executor", ">= 0.9", ratio, ratio >= 0.9)
}

// promise serves a planned model at one load. It is one model, as two would take turns on the only device, and of the nine CNNs that with the
// longest runs on a GPU at small batches, so that what a client adds to a request's way is a small part.
func promise(c *run) {
	name, profile := pick(c, "densenet121", "squeezenet"), c.workPath("promise-profile.json")
	if !exists(c.workPath("promise.json")) {
		c.profile(profile, []string{name}, "1,2,4", 20, "--blocks", "1")
		c.solve("promise", profile, oneModel(name, pick(c, "8x", "20x")), "count: 1", "--certify")
	}
	d := c.drive("promise", c.workPath("models"), c.name(), nil)
	if c.err != nil {
		return
	}
	ratio := func(a, b document.Micros) float64 { return 100 * (float64(a)/float64(b) - 1) }
	m, s := d["measured"], d["simulated"]
	p50, p99, points := ratio(m.Latency.P50US, s.Latency.P50US), ratio(m.Latency.P99US, s.Latency.P99US), 100*(m.Attainment-s.Attainment)
	c.judge("p50 to simulated, %", "within 5", p50, math.Abs(p50) <= 5)
	c.judge("p99 to simulated, %", "within 10", p99, math.Abs(p99) <= 10)
	c.judge("attainment to simulated, points", "within 1", points, math.Abs(points) <= 1)
}

var smallestPipeline = regexp.MustCompile(`smallest pipeline needs (\d+) bytes`)

// pooled serves a pipeline of two stages on two shares of the device, or on two CPUs.
func pooled(c *run) {
	const model, samples = "resnet50", 3
	profile, pool, rounding := c.outPath("profile.json"), "count: 2", "slot"
	if !c.rehearsal {
		// Only shares may be used: on the whole device no model would have to be cut.
		c.profile(profile, []string{model}, "1,4", 30, "--shares", "2")
		p, err := formats.ReadProfile(profile)
		if !c.check(err) {
			return
		}
		m := p.FindModel(model)
		m.Measurements = slices.DeleteFunc(m.Measurements, func(s formats.Measurement) bool { return s.Share != 2 })
		profile, pool, rounding = c.workPath("pooled-profile.json"), "count: 1, max_shares: 2", "fractional"
		_, err = document.WriteFile(profile, p, document.Force(true))
		c.check(err)
	}
	// The planner cuts a model in two where it must: the memory of a device, or share, is declared too small for the whole of it, and just
	// enough for the smallest pipeline that the planner names.
	solve := func(bytes string, more ...string) (*formats.Plan, []byte) {
		more = append(more, "--gpu-rounding", rounding, "--max-batch", pick(c, "4", "2"))
		return c.solve("pooled", profile, oneModel(model, "20x"), pool+", sharing: exclusive, memory: "+bytes+"B", more...)
	}
	_, said := solve("1048576", "--json")
	m := smallestPipeline.FindSubmatch(said)
	if m == nil {
		c.check(fmt.Errorf("the planner does not say how much memory is enough: %s", said))
		return
	}
	plan, said := solve(string(m[1]))
	if plan == nil {
		c.check(fmt.Errorf("no plan: %s", said))
		return
	}
	stages := len(plan.Deployment[0].Pipelines[0].Stages)
	c.judge("stages of the pipeline", "2", float64(stages), stages == 2)

	// Each answer must be that of its own input: what one stage reads of another's memory must be what was written last. It is the nearest of
	// the CPU's; a GPU rounds otherwise, and a process that has opened it would keep MPS from ending.
	in, want := c.answer(model, c.cpu, engine.Options{}, samples)
	d := c.drive("pooled", c.workPath("models"), "0.8", func(url string) {
		data, right := float32s(input(in, samples)), 0
		for k := range samples {
			if nearest(c.infer(url, model, in.Name, in.ShapeAt(1), data[k*len(data)/samples:(k+1)*len(data)/samples]), want) == k {
				right++
			}
		}
		c.judge("answers of the pipeline that are those of their inputs", "3", float64(right), right == samples)
	})
	if c.err != nil {
		return
	}
	c.judge("attainment at 0.8 of the planned rate, %", ">= 99", 100*d["measured"].Attainment, d["measured"].Attainment >= 0.99)
	if d["server"].Transfer == nil {
		c.check(errors.New("the server does not say how tensors crossed"))
		return
	}
	for _, t := range d["server"].Transfer.Tiers {
		c.judge(fmt.Sprintf("tensors by %s, at %.2f GB/s until the reader was told", t.Name, t.BytesPerSecond/1e9), "between stages of a GPU: ipc", float64(t.Transfers), c.rehearsal || slices.Contains([]string{"ipc", "ingress", "egress"}, t.Name))
	}
}

// nearest returns the row of all whose largest difference from v is the least.
func nearest(v, all []float32) int {
	best, least := -1, math.Inf(1)
	for k := 0; len(v) > 0 && (k+1)*len(v) <= len(all); k++ {
		if d := difference(v, all[k*len(v):(k+1)*len(v)]); d < least {
			best, least = k, d
		}
	}
	return best
}

// cascade plans and serves a family of classifiers.
func cascade(c *run) {
	members, dir := pick(c, []string{"digits-4", "digits-16", "digits-64", "digits-256", "digits-conv"}, []string{"digits-4", "digits-16", "digits-64"}), c.digits
	if dir == "" {
		dir = c.workPath("digits")
	}
	samples, profile := filepath.Join(dir, "samples.csv.gz"), c.outPath("profile-digits.json")
	args := []string{"profile", "--on", c.options.device, "--blocks", "1", "--batches", pick(c, "1,2,4,8,16,32,64", "1,4,16"), "--budget", pick(c, "30s", "12s"), "--records", samples, "-o", profile}
	for _, member := range members {
		args = append(args, c.model(dir, member))
	}
	if !exists(samples) {
		c.call("models", "samples", samples)
	}
	c.call(args...)
	workload := fmt.Sprintf("cascade:\n  family: [%s]\n  slo: {latency: 100ms, percentile: p95}\n  qps: {max: %d, ranges: 4, distribution: zipf}\n", strings.Join(members, ", "), pick(c, 4000, 200))
	c.solve("cascade", profile, workload, "count: 1")
	if d := c.drive("cascade", dir, "0.8", nil, "--inputs", samples); c.err == nil {
		p95 := d["measured"].Latency.P95US.D()
		c.judge("p95 of the cascade, ms", "<= 100", p95.Seconds()*1e3, p95 <= 100*time.Millisecond)
	}
}
