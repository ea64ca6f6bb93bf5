package main

import (
	"fmt"
	"strings"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/qlm/sizing"
)

const sizingSource = "QLM, section 8; one trace, seeds 1 to 5 pooled, n and n + 1 keep 99 % of interactive and 99 % of batch requests"

// Names of competitors in package sizing.
const (
	planned     = "planned"
	gatewayLike = "partition, gateway-like"
	byClass     = "split by class, EDF"
)

// sizings counts GPUs.
func (b *bench) sizings(r *instrument.Run, t *instrument.Table) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	t.Columns = []string{"case", "competitor", "GPUs", "30 s in time %", "120 and 300 s in time %", "fleet, with sequences at once"}
	sums, mixed, above := map[string]int{}, 0, 0
	for i := range first(b, 1, sizing.Cases) {
		c := &sizing.Cases[i]
		counts := map[string]int{}
		for n := range sizing.Competitors {
			k := &sizing.Competitors[n]
			if k.OneModel && len(c.Popularity) > 1 {
				continue
			}
			x, err := instrument.Measured(r, fmt.Sprintf("sizing/%s/%s", c.Name, k.Name), func() (*sizing.Sized, error) { return sizing.Count(r.Ctx, d, c, k) })
			if err != nil {
				return err
			}
			counts[k.Name] = x.GPUs
			t.Add(c.Name, k.Name, x.GPUs, fmt.Sprintf("%.2f", 100*x.Attained[0]), fmt.Sprintf("%.2f", 100*x.Attained[1]), x.Fleet)
		}
		if len(c.Popularity) > 1 {
			mixed++
			for name, n := range counts {
				sums[name] += n
			}
			if counts[planned] > partition(counts) {
				above++
			}
		}
		r.Figure(sizingFigure(c, counts))
	}
	t.Note("Rows 0 to 5999 of Azure's conversations of 2023, seeds 1 to %d pooled; n and n + 1 GPUs keep 99 %% of both. A100s run one model at a time, three more wait in the host's memory.", sizing.Seeds)
	if b.small {
		return nil
	}
	for _, x := range []struct {
		than  string
		count int
		least float64
	}{{"the sized partition", partition(sums), 40}, {"a gateway-like stack", sums[gatewayLike], 0}} {
		saved := 100 * (1 - float64(sums[planned])/float64(x.count))
		r.AtLeast(fmt.Sprintf("GPUs for 99/99, sum of %d cases: fewer than %s", mixed, x.than), sizingSource, x.least, "%", saved).Note = fmt.Sprintf("%d against %d", sums[planned], x.count)
	}
	r.Exactly(fmt.Sprintf("GPUs for 99/99: of %d cases with several models, those in which the plan takes more than the sized partition", mixed), sizingSource, 0, "cases", float64(above))
	return nil
}

// partition is the least count of the partitions, with which the planner is compared.
func partition(counts map[string]int) int {
	least := 0
	for name, n := range counts {
		if strings.HasPrefix(name, "partition") && name != gatewayLike && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// sizingFigure returns what is claimed of a case.
func sizingFigure(c *sizing.Case, counts map[string]int) figures.Figure {
	gpus, limit := counts[planned], partition(counts)
	f := figures.Figure{Claim: "GPUs for 99/99, " + c.Name, Source: sizingSource, Measured: float64(gpus), Unit: "GPUs", Note: fmt.Sprintf("partition %d, gateway-like %d", limit, counts[gatewayLike])}
	if n, ok := counts[byClass]; ok {
		f.Note += fmt.Sprintf(", split by class %d", n)
	}
	if f.Asked = fmt.Sprintf("at most %d (the partition)", limit); len(c.Popularity) == 1 {
		limit, f.Asked = 15, "at most 15"
	}
	f.Holds = figures.If(gpus > 0 && gpus <= limit)
	return f
}
