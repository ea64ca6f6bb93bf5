package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"

	"inferplan/bench/figures"
	"inferplan/bench/served"
)

// ocrPolicies are held against each other on the real pipeline, the best first.
var ocrPolicies = []string{"feas", "nexus", "naive"}

// tie is a difference of goodput that runs of a minute or two do not resolve.
const tie = .01

// ocrLoads are shares of the pipeline's capacity.
var ocrLoads = []float64{.8, 1.2, 2}

// ocrCell is a real run beside the same in virtual time.
type ocrCell struct {
	load        float64
	policy      string
	real, again float64
	right       float64
}

// measureOCR measures the real pipeline and writes its figures beside those that
// stand.
func measureOCR(ctx context.Context, f *flags) error {
	dir, err := os.MkdirTemp("", "bench-pard-ocr-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o, err := newOCR(ctx, dir, f.engine, 6, f.budget)
	if err != nil {
		return err
	}
	capacity, err := o.capacity(ctx, f.seconds)
	if err != nil {
		return err
	}
	var cells []ocrCell
	for _, load := range ocrLoads {
		for _, policy := range ocrPolicies {
			r, err := o.serve(ctx, policy, due(load*capacity, f.seconds, 2))
			if err != nil {
				return err
			}
			c := ocrCell{load: load, policy: policy}
			c.real, c.right = r.good()
			if c.again, err = o.again(ctx, r); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%.1fx %s: %.1f %% in time, %.1f %% simulated, %.0f %% of them read right\n", load, policy, 100*c.real, 100*c.again, 100*c.right)
			cells = append(cells, c)
		}
	}
	s := &sheet{command: f.command}
	s.ocr(cells, capacity, f)
	return figures.Put(filepath.Join(f.dir, "figures.json"), "", s.figures...)
}

// ocr makes the figures of the real pipeline.
func (s *sheet) ocr(cells []ocrCell, capacity float64, f *flags) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "capacity %.2f rps\nload\tpolicy\tin time\tsimulated\tread right\n", capacity)
	what := map[string]string{"onnx": "PP-OCRv4", "replay": "PP-OCRv4's times, replayed,"}[f.engine]
	name := map[string]string{"onnx": "OCR pipeline", "replay": "OCR pipeline, replayed"}[f.engine]
	add := s.addLocal(what, f)
	add(name+": highest constant rate with 99 % in time, naive", "shown", capacity, "rps", true)
	for _, load := range ocrLoads {
		var at []ocrCell
		for _, c := range cells {
			if c.load != load {
				continue
			}
			at = append(at, c)
			fmt.Fprintf(w, "%.1f\t%s\t%.4f\t%.4f\t%.2f\n", c.load, c.policy, c.real, c.again, c.right)
			off := 100 * math.Abs(c.again-c.real)
			add(fmt.Sprintf(name+" at %.1fx: goodput of %s, share of the requests", load, c.policy), "shown", c.real, "share", true)
			add(fmt.Sprintf(name+" at %.1fx: goodput of %s, simulated with the recorded times, difference in points of the offered load", load, c.policy), "<= 5", off, "points", off <= 5)
		}
		same := true
		for i, a := range at {
			for _, b := range at[:i] {
				served, simulated := a.real-b.real, a.again-b.again
				same = same && (served*simulated >= 0 || max(math.Abs(served), math.Abs(simulated)) < tie)
			}
		}
		add(fmt.Sprintf(name+" at %.1fx: policies stand in the same order in both, less than a point apart counts as a tie", load), "yes", map[bool]float64{true: 1}[same], "", same)
	}
	w.Flush()
	s.print(os.Stdout)
}

// addLocal returns a function that adds figures measured on this machine.
func (s *sheet) addLocal(what string, f *flags) func(claim, asked string, measured float64, unit string, holds bool) {
	source := fmt.Sprintf("%s on this machine, %d processors, runs of %v; load average at the end %s", what, runtime.NumCPU(), f.seconds, served.LoadAverage())
	s.part = f.parts
	return func(claim, asked string, measured float64, unit string, holds bool) {
		out := figures.Figure{Claim: claim, Source: source, Asked: asked, Measured: measured, Unit: unit}
		if asked != figures.AskedShown {
			out.Holds = figures.If(holds)
		}
		s.add(out)
	}
}

// measureHopeless measures how soon requests without hope are refused.
func measureHopeless(ctx context.Context, f *flags) error {
	late, err := hopeless(ctx, f.seconds)
	if err != nil {
		return err
	}
	if len(late) == 0 {
		return errors.New("no request was refused")
	}
	s := &sheet{command: f.command}
	add := s.addLocal("batches of 100 ms, replayed,", f)
	at := func(q int) float64 { return float64(late[min(len(late)-1, len(late)*q/100)]) / 1e6 }
	add("from hopeless to refused while batches of 100 ms run, median", "shown", at(50), "ms", true)
	add("from hopeless to refused while batches of 100 ms run, p99", "<= 5", at(99), "ms", at(99) <= 5)
	fmt.Printf("%d refusals\n", len(late))
	s.print(os.Stdout)
	return figures.Put(filepath.Join(f.dir, "figures.json"), "", s.figures...)
}
