package main

import (
	"fmt"
	"io"
	"math"

	"inferplan/bench/qlm/instance"
)

const instanceCommand = "go run ./bench/qlm -o bench/qlm/figures.json instance"

// instancePart holds the model of an instance against runs of real servers.
func instancePart(out io.Writer, data string) ([]figure, error) {
	runs, err := instance.Bundled(data)
	if err != nil {
		return nil, err
	}
	small, big := runs[0], runs[1]
	var figures []figure
	var rows [][]string
	for _, c := range []struct {
		name      string
		fit       func(...*instance.Run) (instance.CPU, error)
		on, tests []*instance.Run
		off       float64 // asked of mean, p99 and time per token
		mean, r2  float64
		mape      float64 // 0: not asked
	}{
		{"one set for both", instance.Calibrate, runs, runs, 0.02, 0.02, 0.99, 0.02},
		{"fitted on the RTX PRO 6000", instance.Calibrate, []*instance.Run{big}, []*instance.Run{small}, 0, 0.04, 0.98, 0},
		{"fitted on the RTX 4090", instance.Calibrate, []*instance.Run{small}, []*instance.Run{big}, 0, 0, 0, 0},
		{"both constants free, fitted on the RTX PRO 6000", instance.Free, []*instance.Run{big}, []*instance.Run{small}, 0, 0, 0, 0},
		{"both constants free, fitted on the RTX 4090", instance.Free, []*instance.Run{small}, []*instance.Run{big}, 0, 0, 0, 0},
	} {
		cpu, err := c.fit(c.on...)
		if err != nil {
			return nil, err
		}
		for _, r := range c.tests {
			x, err := r.Compare(cpu)
			if err != nil {
				return nil, err
			}
			rows = append(rows, []string{
				c.name, r.Name, fmt.Sprint(cpu.Iteration), fmt.Sprint(cpu.Sequence), fmt.Sprintf("%.2f / %.2f", x.E2E.Real, x.E2E.Model), percent(x.E2E.Off()), percent(x.E2EP99.Off()),
				fmt.Sprintf("%.4f", x.R2), percent(x.MAPE), percent(x.TPOT.Off()), percent(x.TPOTP99.Off()), percent(x.TTFT.Off()), fmt.Sprintf("%.4f", x.QueuedR2), percent(x.Makespan.Off()), fmt.Sprint(x.Preempted),
			})
			name := fmt.Sprintf("instance model, %s, %s: ", c.name, r.Name)
			add := func(what, unit string, measured, asked float64, atLeast bool) {
				f := figure{Claim: name + what, Source: "runs of vLLM 0.19 in LLMServingSim (bench/examples)", Asked: "reported", Measured: measured, Unit: unit, Command: instanceCommand}
				switch {
				case asked > 0 && atLeast:
					f.Asked, f.Holds = fmt.Sprintf("at least %g", asked), measured >= asked
				case asked > 0:
					f.Asked, f.Holds = fmt.Sprintf("within %g %%", 100*asked), math.Abs(measured) <= asked
				}
				figures = append(figures, f)
			}
			add("mean of end-to-end latency", "share off", x.E2E.Off(), c.mean, false)
			add("p99 of end-to-end latency", "share off", x.E2EP99.Off(), c.off, false)
			add("time per token", "share off", x.TPOT.Off(), c.off, false)
			add("MAPE of end-to-end latency", "share", x.MAPE, c.mape, false)
			add("R2 of end-to-end latency", "", x.R2, c.r2, true)
		}
	}
	columns := []string{"constants", "run", "per iteration", "per sequence", "mean real/model s", "mean", "p99", "R2", "MAPE", "TPOT", "TPOT p99", "TTFT", "R2 queued", "makespan", "preempted"}
	if err := show(out, "Instance model against real vLLM runs, 300 requests each", columns, rows); err != nil {
		return nil, err
	}
	rows = nil
	for _, r := range runs {
		rows = append(rows, []string{r.Name, fmt.Sprint(r.Fit.Points), percent(r.Fit.DecodeMAPE), percent(r.Fit.DecodeMax), percent(r.Fit.PrefillMAPE), percent(r.Fit.PrefillMax), fmt.Sprint(r.Meta.KVTokens)})
	}
	return figures, show(out, "Fit of an iteration to measured layers", []string{"run", "points", "decode MAPE", "largest", "prefill MAPE", "largest", "KV tokens, as the server reported"}, rows)
}
