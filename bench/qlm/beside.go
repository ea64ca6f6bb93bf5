package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/qlm/sizing"
)

// measureBesideInteractive measures fleets that run batches beside interactive requests.
func (b *bench) measureBesideInteractive(r *instrument.Run, t *instrument.Table) error {
	d, err := sizing.OpenTrace(r.Data)
	if err != nil {
		return err
	}
	t.Columns = []string{"case", "competitor", "interactive p99 s, alone", "beside", "ratio", "first token p99 s, alone", "beside", "lines in the window %", "last line, s", "fleet, with sequences at once"}
	for i := range first(b, 1, sizing.BatchCases) {
		c := &sizing.BatchCases[i]
		var others []string
		for n := range sizing.BatchCompetitors {
			k := &sizing.BatchCompetitors[n]
			o, err := instrument.Measured(r, fmt.Sprintf("beside/%s/%s", c.Name, k.Name), func() (*sizing.Outcome, error) { return d.Measure(r.Ctx, c, k) })
			if err != nil {
				return err
			}
			n, sum := len(o.Runs), o.Sum()
			mean := func(sum time.Duration) string { return fmt.Sprintf("%.1f", sum.Seconds()/float64(n)) }
			ratio, lines := slices.Max(o.Ratios()), 100*float64(sum.Done)/float64(n*c.Lines)
			t.Add(c.Name, k.Name, mean(sum.Alone), mean(sum.P99), fmt.Sprintf("%.2f", ratio), mean(sum.FirstAlone), mean(sum.FirstToken), fmt.Sprintf("%.1f", lines), mean(sum.Last), o.Fleet)
			if k.Planned {
				besideFigures(r, c, o, strings.Join(others, "; "))
			} else {
				others = append(others, fmt.Sprintf("%s %.2f times and %.1f %% of lines", k.Name, ratio, lines))
			}
		}
	}
	t.Note("Azure's conversations of 2023, Vicuna-13B; %d stretches of 10 minutes, each with a batch that comes at its beginning and is due at its end. The planner chooses on another stretch. Of ratios the largest counts, of times and lines the mean. Alone: balanced servers that run all that fits. Ratios are of answers to what came before the batch's last line.", sizing.Runs)
	return nil
}

// besideFigures states what is claimed of a case.
func besideFigures(r *instrument.Run, c *sizing.BatchCase, o *sizing.Outcome, others string) {
	const source = "batch beside interactive on one fleet, simulated; largest of the stretches"
	done, last := o.Sum().Done, time.Duration(0)
	for i := range o.Runs {
		last = max(last, o.Runs[i].Last)
	}
	lines := len(o.Runs) * c.Lines
	r.AtMost("whole interactive answers, p99 beside a batch over p99 alone, "+c.Name, source, sizing.Slower, "times", o.Ratios()...).Note = o.Fleet + "; others: " + others
	r.Figure(figures.Figure{Claim: "lines of the batch that were answered within its window, " + c.Name, Source: source, Asked: "all", Measured: float64(done), Unit: fmt.Sprint("of ", lines),
		Holds: figures.If(done == lines), Note: fmt.Sprintf("the last one after %.0f of 600 s", last.Seconds())})
}
