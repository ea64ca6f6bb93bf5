package check

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/planner/lists"
)

// maxListedBlocks is the number of slower blocks of a model that are listed. More are summarised.
const maxListedBlocks = 3

// Explanation returns the reasons of the verdict, one per line: what does not hold, what became slower,
// what to do about it, and notes.
func (r *Result) Explanation() []string {
	lines := lists.Map(len(r.Findings), func(i int) string { return r.Findings[i].String() })
	lines = append(lines, r.slowerBlocks()...)
	lines = append(lines, r.Advice...)
	lines = append(lines, lists.Map(len(r.Notes), func(i int) string { return "note: " + r.Notes[i] })...)
	return lines
}

// slowerBlocks returns the lines about slower blocks for the explanation of a verdict. If more than maxListedBlocks blocks of a model on
// a device kind, at one share and batch, are slower, they get a single line, since they have one cause.
func (r *Result) slowerBlocks() []string {
	type place struct {
		model, device string
		share, batch  int
	}
	blocksByPlace := map[place][]*BlockChange{}
	var order []place
	for i := range r.Blocks {
		b := &r.Blocks[i]
		p := place{b.Model, b.Device, b.Share, b.Batch}
		if blocksByPlace[p] == nil {
			order = append(order, p)
		}
		blocksByPlace[p] = append(blocksByPlace[p], b)
	}

	// List a few blocks each, and summarise many in one line.
	var lines []string
	for _, p := range order {
		list := blocksByPlace[p] // the slowest first
		if len(list) <= maxListedBlocks {
			lines = append(lines, lists.Map(len(list), func(i int) string { return "slower: " + list[i].String() })...)
			continue
		}
		smallest := slices.MinFunc(list, func(a, b *BlockChange) int { return cmp.Compare(a.Change, b.Change) })
		lines = append(lines, fmt.Sprintf("slower: %d blocks of %s on %s at batch %d, by %+.1f to %+.1f %%; most: %s",
			len(list), p.model, p.device, p.batch, 100*smallest.Change, 100*list[0].Change, list[0]))
	}
	return lines
}

// FailureText says why a figure fails, on one line.
func (c *Comparison) FailureText() string {
	before, today, unit := c.FormattedValues()
	return fmt.Sprintf("%s of %s: %s %s, was %s (%+.2f %%, allowed %g %%)", c.Metric, c.Subject, today, unit, before, 100*c.WorseBy, 100*c.Tolerance)
}

// FormattedValues returns the two values of a figure and their unit as people read them. Microseconds become
// milliseconds, as in all tables.
func (c *Comparison) FormattedValues() (before, today, unit string) {
	factor, unit := 1.0, c.Unit
	if unit == "us" {
		factor, unit = 1e-3, "ms"
	}
	return fmt.Sprintf("%.6g", c.Old*factor), fmt.Sprintf("%.6g", c.New*factor), unit
}
