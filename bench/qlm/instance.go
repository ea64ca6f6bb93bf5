package main

import (
	"fmt"
	"math"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/qlm/instance"
	"inferplan/profiler/llmrun"
)

// instances holds the model of an instance against runs of real servers: constants that are fitted to both runs, and those of
// one run on the other.
func instances(r *instrument.Run, t *instrument.Table) error {
	runs, err := instance.Bundled(r.Data)
	if err != nil {
		return err
	}
	small, big := runs[0], runs[1]
	t.Columns = []string{"constants", "run", "per iteration", "per sequence", "decode MAPE of the layers", "prefill MAPE", "mean real/model s", "mean", "p99", "R2", "MAPE", "TPOT", "TTFT", "makespan"}
	for _, c := range []struct {
		name      string
		on, tests []*llmrun.Run
		off       float64 // asked of the mean, as a share
		r2        float64
		all       bool // the rest is asked as well
	}{
		{"one set for both", runs, runs, 0.02, 0.99, true},
		{"fitted on the RTX PRO 6000", []*llmrun.Run{big}, []*llmrun.Run{small}, 0.04, 0.98, false},
	} {
		cpu, err := llmrun.Calibrate(c.on...)
		if err != nil {
			return err
		}
		for _, run := range c.tests {
			x, err := run.Compare(cpu)
			if err != nil {
				return err
			}
			mean, p99, tpot := x.E2E.RelativeError(), x.E2EP99.RelativeError(), x.TPOT.RelativeError()
			t.Add(c.name, run.Name, cpu.Iteration, cpu.Sequence, percent(run.Fit.DecodeMAPE), percent(run.Fit.PrefillMAPE), fmt.Sprintf("%.2f / %.2f", x.E2E.Measured, x.E2E.Model), percent(mean), percent(p99),
				fmt.Sprintf("%.4f", x.R2), percent(x.MAPE), percent(tpot), percent(x.TTFT.RelativeError()), percent(x.Makespan.RelativeError()))
			claim := fmt.Sprintf("instance model, %s, %s: ", c.name, run.Name)
			const source = "runs of vLLM 0.19 in LLMServingSim (bench/examples)"
			within := func(what, unit string, share float64) {
				r.Figure(figures.Figure{Claim: claim + what, Source: source, Asked: fmt.Sprintf("within %g %%", 100*c.off), Measured: share, Unit: unit, Holds: figures.If(math.Abs(share) <= c.off)})
			}
			within("mean of end-to-end latency", "share off", mean)
			if c.all {
				within("p99 of end-to-end latency", "share off", p99)
				within("time per token", "share off", tpot)
				within("MAPE of end-to-end latency", "share", x.MAPE)
			}
			r.AtLeast(claim+"R2 of end-to-end latency", source, c.r2, "", x.R2)
		}
	}
	return nil
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
