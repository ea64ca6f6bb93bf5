package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/qlm/beside"
	"inferplan/bench/table"
)

// besides put batches beside interactive requests.
func besides(b *bench, t *table.Table) error {
	d, err := beside.Open(b.data)
	if err != nil {
		return err
	}
	t.Columns = []string{"case", "competitor", "interactive p99 s, alone", "beside", "ratio", "first token p99 s, alone", "beside", "lines in the window %", "last line, s", "fleet, with sequences at once"}
	for i := range beside.Cases {
		c := &beside.Cases[i]
		if b.small && i > 0 {
			break
		}
		var planned *beside.Outcome
		note := ""
		for n := range beside.Competitors {
			k := &beside.Competitors[n]
			o, err := measured(b.keep, fmt.Sprintf("beside/%s/%s", c.Name, k.Name), func() (*beside.Outcome, error) { return d.Measure(b.ctx, c, k) })
			if err != nil {
				return err
			}
			ratio, lines := besideRow(t, c, k.Name, o)
			if k.Planned {
				planned = o
			} else {
				note += fmt.Sprintf("%s %.2f times and %.1f %% of lines; ", k.Name, ratio, lines)
			}
		}
		besideFigures(b, c, planned, strings.TrimSuffix(note, "; "))
	}
	t.Note("Azure's conversations of 2023, Vicuna-13B; %d stretches of 10 minutes, each with a batch that comes at its beginning and is due at its end. The planner chooses on another stretch. Of ratios the largest counts, of times and lines the mean. Alone: balanced servers that run all that fits. Ratios are of answers to what came before the batch's last line.", beside.Runs)
	return nil
}

// besideRow adds a row; it gives the largest ratio, and the share of lines in percent.
func besideRow(t *table.Table, c *beside.Case, name string, o *beside.Outcome) (ratio, lines float64) {
	var alone, with, first, token, last time.Duration
	n := time.Duration(len(o.Runs))
	for i := range o.Runs {
		r := &o.Runs[i]
		ratio = max(ratio, r.Ratio())
		lines += 100 * float64(r.Done) / float64(c.Lines) / float64(n)
		alone, with, first, token, last = alone+r.Alone/n, with+r.P99/n, first+r.FirstAlone/n, token+r.FirstToken/n, last+r.Last/n
	}
	t.Add(c.Name, name, fmt.Sprintf("%.1f", alone.Seconds()), fmt.Sprintf("%.1f", with.Seconds()), fmt.Sprintf("%.2f", ratio), fmt.Sprintf("%.2f", first.Seconds()),
		fmt.Sprintf("%.2f", token.Seconds()), fmt.Sprintf("%.1f", lines), fmt.Sprintf("%.0f", last.Seconds()), o.Fleet)
	return ratio, lines
}

// besideFigures adds what is claimed of a case.
func besideFigures(b *bench, c *beside.Case, o *beside.Outcome, others string) {
	const source = "batch beside interactive on one fleet, simulated; largest of the stretches"
	low, high, done, last := math.Inf(1), 0.0, 0, time.Duration(0)
	for i := range o.Runs {
		r := &o.Runs[i]
		low, high, done, last = min(low, r.Ratio()), max(high, r.Ratio()), done+r.Done, max(last, r.Last)
	}
	lines := len(o.Runs) * c.Lines
	b.figures = append(b.figures,
		figures.Figure{Claim: "whole interactive answers, p99 beside a batch over p99 alone, " + c.Name, Source: source, Asked: fmt.Sprintf("at most %g", beside.Slower), Measured: high, Interval: &[2]float64{low, high}, Unit: "times",
			Holds: figures.If(high <= beside.Slower), Note: o.Fleet + "; others: " + others},
		figures.Figure{Claim: "lines of the batch that were answered within its window, " + c.Name, Source: source, Asked: "all", Measured: float64(done), Unit: fmt.Sprint("of ", lines),
			Holds: figures.If(done == lines), Note: fmt.Sprintf("the last one after %.0f of 600 s", last.Seconds())})
}
