package gpucheck

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/document"
)

// cluster writes a cluster of the device at hand.
func (c *check) cluster(name string, count, maxShares int, memory int64) error {
	line := fmt.Sprintf("- {device: %s, count: %d, max_shares: %d, per_node: %d", c.kind(), count, maxShares, count)
	if c.rehearsal() {
		line = fmt.Sprintf("- {device: %s, count: %d, per_node: %d", c.kind(), count, count)
	}
	if memory > 0 {
		// Each stage has its device, or share, to itself.
		line += fmt.Sprintf(", memory: %dB, sharing: exclusive", memory)
	}
	return os.WriteFile(c.work(name), []byte("format: inferplan.cluster/v1\npools:\n"+line+"}\n"), 0o644)
}

func rel(a, b document.Micros) float64 { return float64(a)/float64(b) - 1 }

// row is a load's line of a table.
func (d driven) row(load float64) []string {
	m, s, p := d.measured, d.simulated, d.promised
	return []string{fmt.Sprint(load), fmt.Sprint(m.Requests), micros(m.Latency.P50US), micros(m.Latency.P99US), pct(m.Attainment),
		signed(rel(m.Latency.P50US, s.Latency.P50US)), signed(rel(m.Latency.P99US, s.Latency.P99US)), signed(m.Attainment - s.Attainment),
		signed(rel(m.Latency.P50US, p.Latency.P50US)), signed(rel(m.Latency.P99US, p.Latency.P99US)), signed(m.Attainment - p.Attainment)}
}

var drivenHeader = []string{"load", "requests", "p50 us", "p99 us", "attainment %", "p50 to simulated %", "p99 %", "points", "p50 to promised %", "p99 %", "points"}

func signed(x float64) string { return fmt.Sprintf("%+.2f", 100*x) }

// promisedModel is the one that is served against its promise: of the nine CNNs
// that with the longest runs on a GPU at small batches, so that what a client adds
// to a request's way (a tenth of a millisecond or two) is a small part of what is
// compared.
const promisedModel = "densenet121"

// promise serves a planned model at three loads.
func promise(ctx context.Context, c *check, r *StepResult) error {
	// One model: two would take turns on the only device, and the longer one decide
	// about the other's SLO.
	name, loads, seconds, slo, budget := promisedModel, []float64{0.5, 0.8, 0.95}, 15, "8x", 20*time.Second
	batches := []int{1, 2, servedBatch}
	if c.Quick {
		name, loads, seconds, slo, budget = "squeezenet", []float64{0.5}, 6, "20x", 8*time.Second
		batches = []int{1, 2}
	}
	profile := c.work("promise-profile.json")
	if _, err := c.measureInto(ctx, profile, budget, []string{name}, batches, 1); err != nil {
		return err
	}
	planned := c.work("promise-as-served.json")
	if err := c.asServed(ctx, r, profile, planned, name); err != nil {
		return err
	}
	if err := c.cluster("promise-cluster.yaml", 1, 1, 0); err != nil {
		return err
	}
	if err := c.workload("promise-workload.yaml", slo, name); err != nil {
		return err
	}
	if _, err := c.plan(ctx, "solve", "--profile", planned, "--cluster", c.work("promise-cluster.yaml"), "--workload", c.work("promise-workload.yaml"),
		"--margin", "auto", "--certify", "--max-batch", fmt.Sprint(slices.Max(batches)), "-o", c.work("promise.json"), "--force"); err != nil {
		return err
	}
	plan, err := formats.ReadPlan(c.work("promise.json"))
	if err != nil {
		return err
	}
	shown := planTable(plan)
	r.table(shown.Title, shown.Header...).Rows = shown.Rows
	for _, load := range loads {
		at := fmt.Sprintf("load %g: ", load)
		if r.judged(at + "attainment") {
			continue
		}
		d, err := c.drive(ctx, "promise.json", c.work("models"), load, seconds)
		if err != nil {
			return err
		}
		t := r.table("measured against simulated with the times recorded meanwhile, and against what the profile promised", drivenHeader...)
		t.Rows = append(t.Rows, d.row(load))
		m, s := d.measured, d.simulated
		p50, p99, points := 100*rel(m.Latency.P50US, s.Latency.P50US), 100*rel(m.Latency.P99US, s.Latency.P99US), 100*(m.Attainment-s.Attainment)
		r.verdict(at+"p50 to simulated, %", "within 5", p50, math.Abs(p50) <= 5)
		r.verdict(at+"p99 to simulated, %", "within 10", p99, math.Abs(p99) <= 10)
		r.verdict(at+"attainment to simulated, points", "within 1", points, math.Abs(points) <= 1)
		if err := c.keep(r); err != nil {
			return err
		}
	}
	return nil
}

// asServed writes a profile whose times of a model's runs at one block are those
// of a worker's runs: inputs and outputs in the host's memory, copied by each run.
// A profile has what lies on the device copied by nobody.
func (c *check) asServed(ctx context.Context, r *StepResult, from, to, name string) error {
	p, err := readProfile(from)
	if err != nil {
		return err
	}
	_, sub, err := c.model(ctx, name)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	blk, err := c.eng.Load(ctx, sub, c.dev, engine.Options{})
	if err != nil {
		return err
	}
	defer blk.Close()
	t := Table{Title: "one run, microseconds: on the device alone, and with the copies that a worker's run makes", Header: []string{"model", "batch", "profile", "as served"}}
	for i := range p.Models {
		m := &p.Models[i]
		for k := range m.Measurements {
			s := &m.Measurements[k]
			if m.Model != name || s.Share != 1 || len(s.Blocks) != 1 {
				continue
			}
			took, err := c.hostRuns(ctx, blk, s.Batch)
			if err != nil {
				return err
			}
			t.Rows = append(t.Rows, []string{name, fmt.Sprint(s.Batch), micros(s.Blocks[0].WallUS), fmt.Sprintf("%.1f", float64(took)/1e3)})
			if c.rehearsal() {
				continue // a CPU copies nothing, and its profile counts CPU time
			}
			for _, l := range []*formats.Latency{&s.Blocks[0], s.WholeModel} {
				if l == nil {
					continue
				}
				if l.P99US != 0 {
					l.P99US += document.Micros(took) - l.WallUS
				}
				l.WallUS = document.Micros(took)
			}
		}
	}
	r.table(t.Title, t.Header...).Rows = t.Rows
	_, err = document.WriteFile(to, p, document.Force(true))
	return err
}

func planTable(p *formats.Plan) Table {
	t := Table{Title: "the plan", Header: []string{"model", "rps", "batch", "stages", "SLO ms"}}
	for i, m := range p.Deployment {
		for _, pl := range m.Pipelines {
			var stages []string
			for _, s := range pl.Stages {
				stages = append(stages, fmt.Sprintf("[%d,%d) on %d of 1/%d %s", s.Blocks[0], s.Blocks[1], s.Replicas, s.Share, s.Device))
			}
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprintf("%.1f", pl.RPS), fmt.Sprint(pl.Batch), strings.Join(stages, ", "), fmt.Sprintf("%.1f", p.PromiseFor(i).SLOUS.D().Seconds()*1e3)})
		}
	}
	return t
}
