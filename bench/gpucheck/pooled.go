package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"inferplan/engine"
	"inferplan/executor"
	"inferplan/formats"
	"inferplan/formats/document"
)

// servedBatch is the largest batch of served plans. A worker on a GPU makes
// every batch size up to it ready, seconds each; time on the GPU is scarce.
const servedBatch = 4

var smallestPipeline = regexp.MustCompile(`smallest pipeline needs (\d+) bytes`)

// pooled serves a pipeline of two stages on two shares of the device.
func pooled(ctx context.Context, c *check, r *StepResult) error {
	if err := c.needsProfile(pooledModel); err != nil {
		return err
	}
	if c.rehearsal() {
		return c.servePooled(ctx, r, 2, 1)
	}
	return c.withMPS(r, func() error {
		if _, err := c.measure(ctx, "profile.json", 30*time.Second, []string{pooledModel}, []int{1, servedBatch}, "--shares", "2"); err != nil {
			return errors.Join(err, stopped(ctx))
		}
		return errors.Join(c.servePooled(ctx, r, 1, 2), stopped(ctx))
	})
}

const pooledModel = "resnet50"

// pipelineAnswers sends several inputs through a plan, one after the other, and
// looks whether each answer is that of its own input: what one stage reads of
// another's memory must be what was written last. (Numbers are not held against
// each other: a GPU rounds otherwise.)
func (c *check) pipelineAnswers(ctx context.Context, r *StepResult, plan *formats.Plan, name string) error {
	const samples = 3
	path, sub, err := c.model(ctx, name)
	if err != nil {
		return err
	}
	// By the CPU: a process that has opened the GPU would keep MPS from ending.
	cpu, err := reference()
	if err != nil {
		return err
	}
	want, err := c.answer(ctx, sub, cpu, engine.Options{}, samples)
	if err != nil {
		return err
	}
	x, err := executor.New(ctx, plan, executor.Options{
		CoreOptions:   executor.CoreOptions{ModelsDir: filepath.Dir(path), Log: slog.New(slog.NewTextHandler(c.log(), nil))},
		WorkerOptions: executor.WorkerOptions{ShareCPUs: true, Command: []string{c.Self, "worker"}},
	})
	if err != nil {
		return err
	}
	defer x.Close()
	data := input(sub.Inputs[0], samples)
	per, own := len(data)/samples, 0
	for k := range samples {
		req := request(name, sub, 1, data[k*per:(k+1)*per])
		resp, err := x.Infer(ctx, req)
		if err != nil {
			return err
		}
		own += count(nearest(float32s(resp.Outputs[0].Data), want[0]) == k)
		if resp.Release != nil {
			resp.Release()
		}
	}
	r.verdict("answers of the pipeline that are those of their inputs", fmt.Sprint(samples), float64(own), own == samples)
	return nil
}

// nearest is the row of all whose largest difference from v is the least.
func nearest(v, all []float32) int {
	best, least := -1, math.Inf(1)
	for k := 0; (k+1)*len(v) <= len(all); k++ {
		if d, _, _, _ := difference([][]float32{v}, [][]float32{all[k*len(v) : (k+1)*len(v)]}, 1); d < least {
			best, least = k, d
		}
	}
	return best
}

// servePooled plans and serves it. The planner cuts a model in two where it must:
// here the cluster's memory is declared too small for the whole of it.
func (c *check) servePooled(ctx context.Context, r *StepResult, count, share int) error {
	const name, file = pooledModel, "profile.json"
	seconds := 15
	if c.Quick {
		seconds = 6
	}
	profile, slo := c.out(file), "20x"
	rounding := "slot"
	if share > 1 {
		// Only shares may be used: on the whole device no model would have to be cut.
		var err error
		if slo, err = c.onlyShare(file, c.work("pooled-profile.json"), name, share); err != nil {
			return err
		}
		profile, rounding = c.work("pooled-profile.json"), "fractional"
	}
	if err := c.workload("pooled-workload.yaml", slo, name); err != nil {
		return err
	}
	solve := []string{"solve", "--profile", profile, "--gpu-rounding", rounding, "--cluster", c.work("pooled-cluster.yaml"), "--workload", c.work("pooled-workload.yaml"),
		"--max-partitions", "2", "--max-batch", fmt.Sprint(min(servedBatch, slices.Max(c.batches()))), "-o", c.work("pooled.json"), "--force"}
	// The planner says how little memory is enough for some pipeline.
	if err := c.cluster("pooled-cluster.yaml", count, share, 1<<20); err != nil {
		return err
	}
	text, _ := c.plan(ctx, append(solve, "--json")...)
	var memory int64
	if m := smallestPipeline.FindStringSubmatch(text); m == nil {
		return fmt.Errorf("the planner does not say how much memory %s needs: %s", name, text)
	} else if _, err := fmt.Sscan(m[1], &memory); err != nil {
		return err
	}
	if err := c.cluster("pooled-cluster.yaml", count, share, memory); err != nil {
		return err
	}
	if _, err := c.plan(ctx, solve...); err != nil {
		return err
	}
	plan, err := formats.ReadPlan(c.work("pooled.json"))
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, planTable(plan))
	stages := 0
	for _, pl := range plan.Deployment[0].Pipelines {
		stages = max(stages, len(pl.Stages))
	}
	r.verdict("stages of the pipeline", "2", float64(stages), stages == 2)
	if err := c.pipelineAnswers(ctx, r, plan, name); err != nil {
		return err
	}
	d, err := c.drive(ctx, "pooled.json", c.work("models"), 0.8, seconds)
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, Table{Title: "served at 0.8 of the planned rate", Header: drivenHeader, Rows: [][]string{d.row(0.8)}})
	r.verdict("attainment at 0.8 of the planned rate, %", ">= 99", 100*d.measured.Attainment, d.measured.Attainment >= 0.99)
	if s, err := formats.ReadReport(c.work("pooled-served.json")); err == nil && s.Transfer != nil {
		r.Tables = append(r.Tables, transferTable(s.Transfer))
	}
	return nil
}

// onlyShare copies a profile without the measurements of other shares, and
// returns the SLO of 20 times the whole device's time.
func (c *check) onlyShare(file, to, name string, share int) (slo string, err error) {
	p, err := readProfile(c.out(file))
	if err != nil {
		return "", err
	}
	one := find(p, name, c.kind(), 1, 1)
	if one == nil || one.WholeModel == nil {
		return "", fmt.Errorf("%s has no measurement of %s at batch 1", file, name)
	}
	for i := range p.Models {
		m := &p.Models[i]
		m.Measurements = slices.DeleteFunc(m.Measurements, func(s formats.Measurement) bool { return s.Share != share })
	}
	_, err = document.WriteFile(to, p, document.Force(true))
	return fmt.Sprintf("%dus", 20*one.WholeModel.WallUS.D().Microseconds()), err
}

// transferTable shows by which tiers tensors went.
func transferTable(x *formats.TierReport) Table {
	t := Table{Title: "how tensors crossed while it was served", Header: []string{"tier", "transfers", "bytes", "1e9 bytes a second until the reader was told"}}
	for _, v := range x.Tiers {
		t.Rows = append(t.Rows, []string{v.Name, fmt.Sprint(v.Transfers), fmt.Sprint(v.Bytes), fmt.Sprintf("%.2f", v.BytesPerSecond/1e9)})
	}
	return t
}
