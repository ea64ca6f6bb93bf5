package main

import (
	"context"
	"fmt"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
)

// crosscheck holds the notes' figures.
func (b *bench) crosscheck(f *published.Family, t *table.Table) error {
	key := f.Name + "/crosscheck"
	list, err := memo(&b.runs, key, 10*perPlan, func() []baseline.Check { return nil }, func(ctx context.Context) ([]baseline.Check, error) {
		return baseline.CrossCheck(ctx, f, true)
	}, func(list []baseline.Check) string { return fmt.Sprintf("%d figures", len(list)) })
	if err != nil {
		return err
	}
	good := 0
	for _, c := range list {
		if c.OK || c.Better {
			good++
		}
		within := "yes"
		switch {
		case c.Better:
			within = "better"
		case !c.OK:
			within = "NO"
		}
		t.Add(f.Name, c.What, c.Notes, c.Ours, c.Difference, c.Tolerance, within)
	}
	if len(list) > 0 {
		b.figure(figures.Figure{Claim: fmt.Sprintf("cross-check's figures of %s within their tolerances, or bettered", f.Name), Source: "an implementation of the same by others",
			Asked: "100", Measured: 100 * float64(good) / float64(len(list)), Unit: "%", Holds: figures.If(good == len(list)), Note: fmt.Sprintf("%d of %d", good, len(list))}, "crosscheck", f)
	}
	return nil
}
