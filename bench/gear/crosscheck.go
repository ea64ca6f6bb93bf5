package main

import (
	"context"
	"fmt"

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
	for _, c := range list {
		within := "yes"
		switch {
		case c.Better:
			within = "better"
		case !c.OK:
			within = "NO"
		}
		t.Add(f.Name, c.What, c.Notes, c.Ours, c.Difference, c.Tolerance, within)
	}
	return nil
}
