package main

import (
	"fmt"
	"math"
	"strings"

	"inferplan/bench/figures"
	"inferplan/bench/qlm/instance"
	"inferplan/bench/table"
	"inferplan/profiler/llmrun"
)

// instances holds the model of an instance against runs of real servers.
func (b *bench) instances(t *table.Table) error {
	runs, err := instance.Bundled(b.data)
	if err != nil {
		return err
	}
	small, big := runs[0], runs[1]
	t.Columns = []string{"constants", "run", "per iteration", "per sequence", "mean real/model s", "mean", "p99", "R2", "MAPE", "TPOT", "TPOT p99", "TTFT", "R2 queued", "makespan", "preempted"}
	for _, c := range []struct {
		name      string
		fit       func(...*llmrun.Run) (llmrun.CPUCost, error)
		on, tests []*llmrun.Run
		off       float64 // asked of mean, p99 and time per token
		mean, r2  float64
		mape      float64 // 0 if it is not asked
	}{
		{"one set for both", llmrun.Calibrate, runs, runs, 0.02, 0.02, 0.99, 0.02},
		{"fitted on the RTX PRO 6000", llmrun.Calibrate, []*llmrun.Run{big}, []*llmrun.Run{small}, 0, 0.04, 0.98, 0},
		{"fitted on the RTX 4090", llmrun.Calibrate, []*llmrun.Run{small}, []*llmrun.Run{big}, 0, 0, 0, 0},
		{"both constants free, fitted on the RTX PRO 6000", llmrun.FitCPU, []*llmrun.Run{big}, []*llmrun.Run{small}, 0, 0, 0, 0},
		{"both constants free, fitted on the RTX 4090", llmrun.FitCPU, []*llmrun.Run{small}, []*llmrun.Run{big}, 0, 0, 0, 0},
	} {
		cpu, err := c.fit(c.on...)
		if err != nil {
			return err
		}
		for _, r := range c.tests {
			x, err := r.Compare(cpu)
			if err != nil {
				return err
			}
			t.Add(
				c.name, r.Name, fmt.Sprint(cpu.Iteration), fmt.Sprint(cpu.Sequence), fmt.Sprintf("%.2f / %.2f", x.E2E.Measured, x.E2E.Model), percent(x.E2E.RelativeError()), percent(x.E2EP99.RelativeError()),
				fmt.Sprintf("%.4f", x.R2), percent(x.MAPE), percent(x.TPOT.RelativeError()), percent(x.TPOTP99.RelativeError()), percent(x.TTFT.RelativeError()), fmt.Sprintf("%.4f", x.QueuedR2), percent(x.Makespan.RelativeError()), x.Preemptions,
			)
			name := fmt.Sprintf("instance model, %s, %s: ", c.name, r.Name)
			add := func(what, unit string, measured, asked float64, atLeast bool) {
				f := figures.Figure{Claim: name + what, Source: "runs of vLLM 0.19 in LLMServingSim (bench/examples)", Measured: measured, Unit: unit}
				switch {
				case asked > 0 && atLeast:
					f.Asked, f.Holds = fmt.Sprintf("at least %g", asked), figures.If(measured >= asked)
				case asked > 0:
					f.Asked, f.Holds = fmt.Sprintf("within %g %%", 100*asked), figures.If(math.Abs(measured) <= asked)
				}
				b.figures = append(b.figures, f)
			}
			add("mean of end-to-end latency", "share off", x.E2E.RelativeError(), c.mean, false)
			add("p99 of end-to-end latency", "share off", x.E2EP99.RelativeError(), c.off, false)
			add("time per token", "share off", x.TPOT.RelativeError(), c.off, false)
			add("MAPE of end-to-end latency", "share", x.MAPE, c.mape, false)
			add("R2 of end-to-end latency", "", x.R2, c.r2, true)
		}
	}
	return nil
}

// fits shows how well an iteration's coefficients fit the measured layers.
func (b *bench) fits(t *table.Table) error {
	runs, err := instance.Bundled(b.data)
	if err != nil {
		return err
	}
	t.Columns = []string{"run", "points", "decode MAPE", "largest", "prefill MAPE", "largest", "KV tokens, as the server reported"}
	for _, r := range runs {
		t.Add(r.Name, r.Fit.Points, percent(r.Fit.DecodeMAPE), percent(r.Fit.DecodeMax), percent(r.Fit.PrefillMAPE), percent(r.Fit.PrefillMax), r.Meta.KVTokens)
	}
	return nil
}

func percent(x float64) string { return strings.TrimPrefix(fmt.Sprintf("%+.2f %%", 100*x), "+") }
