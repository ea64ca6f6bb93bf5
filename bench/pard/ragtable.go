package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"inferplan/bench/figures"
	"inferplan/bench/kept"
	"inferplan/bench/pard/ttft"
	"inferplan/bench/qlm/instance"
	"inferplan/cputime"
)

// ragRates are mean rates of queries on the trace azure.
var ragRates = []float64{3, 4, 5}

// ragQuantile is the quantile of lengths that "predicted" takes.
const ragQuantile = .5

// ragCells measures what is missing of the part "rag".
func (b *bench) ragCells(seeds int, have results, lines *kept.Lines) error {
	t := b.traces[slices.IndexFunc(b.traces, func(t *trace) bool { return t.name == "azure" })]
	for seed := range uint64(seeds) {
		for _, rate := range ragRates {
			for _, name := range ttft.Names {
				c := cell{Case: fmt.Sprintf("rag/azure-%.0f", rate), Policy: name, Seed: seed + 1}
				if _, done := have[key(&c)]; done {
					continue
				}
				out, err := ragRun(t, rate, name, seed+1)
				if err != nil {
					return fmt.Errorf("%s: %w", c.Case, err)
				}
				c.outcome, have[key(&c)] = out, out
				if err := lines.Add(&c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func ragRun(t *trace, rate float64, name string, seed uint64) (outcome, error) {
	pol, err := ttft.New(name, ttftSLO, instance.Mistral7B.Iteration.TokenTime(1, 200), kinds, ragQuantile, seed)
	if err != nil {
		return outcome{}, err
	}
	before := cputime.Used()
	r := newRAG(drawQueries(t, rate, seed), pol)
	if err := r.run(); err != nil {
		return outcome{}, err
	}
	out := outcome{Requests: int64(len(r.list)), CPU: (cputime.Used() - before).Seconds()}
	for i := range r.list {
		switch r.list[i].end {
		case inTime:
			out.Good++
		case tooLate:
			out.Late++
		case undecided:
			return outcome{}, fmt.Errorf("query %d has no end", i)
		}
	}
	for s := range 4 {
		var list []float64
		for i := range r.stages {
			if x := r.stages[i][s]; x > 0 {
				list = append(list, x)
			}
		}
		slices.Sort(list)
		at := func(q float64) float64 { return list[min(len(list)-1, int(q*float64(len(list))))] }
		out.Stages = append(out.Stages, []float64{at(.5), at(.9), at(.99)})
	}
	return out, nil
}

// rag prints the part and adds its figures.
func (s *sheet) rag(w io.Writer) {
	if len(s.of("rag")) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nrag: first token within 5 s, dropped or late %% (half of the 95 %% interval)\ncase")
	for _, p := range ttft.Names {
		fmt.Fprintf(t, "\t%s", p)
	}
	fmt.Fprintln(t)
	sums, n := map[string]float64{}, 0.
	for _, name := range s.cases("rag") {
		fmt.Fprintf(t, "%s", name)
		for _, p := range ttft.Names {
			m, half := mean(s.cellsOf(name, p), func(o *outcome) float64 { return 100 * o.drop() })
			fmt.Fprintf(t, "\t%.2f (%.2f)", m, half)
			sums[p] += m
		}
		fmt.Fprintln(t)
		n++
	}
	if n == 0 {
		return
	}
	for _, name := range s.cases("rag") {
		o := s.cellsOf(name, "reactive")[0]
		fmt.Fprintf(t, "%s reactive, seconds in a stage, p50 p90 p99: rewrite %.2f, retrieve %.2f, search %.2f, generate to the first token %.2f\n", name, o.Stages[0], o.Stages[1], o.Stages[2], o.Stages[3])
	}
	t.Flush()
	add := func(claim, asked string, x float64, holds figures.Holds) {
		s.add(figures.Figure{Claim: "RAG: " + claim, Source: "PARD §7", Asked: asked, Measured: x, Unit: "ratio", Holds: holds})
	}
	x := 1 - sums["proactive"]/sums["reactive"]
	add("drops that proactive takes off reactive", ">= 0.22", x, orPartly(x >= .22))
	x = (sums["proactive"] - sums["predicted"]) / (sums["proactive"] - sums["oracle"])
	add("part of proactive to oracle that the prediction of lengths closes", ">= 0.5", x, figures.If(x >= .5))
	add("drops under oracle over proactive", "0.65", sums["oracle"]/sums["proactive"], orPartly(sums["oracle"]/sums["proactive"] <= .65))
	add("drops under the probabilistic admitter over proactive", figures.AskedShown, sums["probabilistic"]/sums["proactive"], "")
}
