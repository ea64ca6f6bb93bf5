package main

import (
	"fmt"
	"strings"

	"inferplan/bench/figures"
	"inferplan/bench/qlm/fleet"
	"inferplan/bench/qlm/sizing"
	"inferplan/bench/table"
)

// mixed is the number of cases with several models: the headline sums over them.
const mixed = 5

// sizings counts GPUs.
func (b *bench) sizings(t *table.Table) error {
	d, err := fleet.Open(b.data)
	if err != nil {
		return err
	}
	t.Columns = []string{"case", "competitor", "GPUs", "30 s in time %", "120 and 300 s in time %", "fleet, with sequences at once", "bound"}
	sums, above := map[string]int{}, 0
	for i := range sizing.Cases {
		c := &sizing.Cases[i]
		if b.small && i > 0 && i < mixed {
			continue
		}
		floor, err := measured(b.keep, "sizing/floor/"+c.Name, func() (int, error) { return sizing.Floor(d, c) })
		if err != nil {
			return err
		}
		counts := map[string]int{}
		for n := range sizing.Competitors {
			k := &sizing.Competitors[n]
			if k.OneModel && len(c.Popularity) > 1 {
				continue
			}
			x, err := measured(b.keep, fmt.Sprintf("sizing/%s/%s", c.Name, k.Name), func() (*sizing.Sized, error) { return sizing.Count(b.ctx, d, c, k) })
			if err != nil {
				return err
			}
			if x.GPUs > 0 && x.GPUs < floor {
				return fmt.Errorf("%s, %s: %d GPUs hold, the bound is %d", c.Name, k.Name, x.GPUs, floor)
			}
			counts[k.Name] = x.GPUs
			if len(c.Popularity) > 1 {
				sums[k.Name] += x.GPUs
			}
			t.Add(c.Name, k.Name, x.GPUs, fmt.Sprintf("%.2f", 100*x.Attained[0]), fmt.Sprintf("%.2f", 100*x.Attained[1]), x.Fleet, floor)
		}
		above += b.sizingFigures(c, counts, floor)
	}
	if !b.small {
		headline(b, sums, above)
	}
	t.Note("Rows 0 to 5999 of Azure's conversations of 2023, seeds 1 to %d pooled; n and n + 1 GPUs keep 99 %% of both. A100s run one model at a time, three more wait in the host's memory.", sizing.Seeds)
	return nil
}

// partition is the least count of the partitions, with which the planner is
// compared.
func partition(counts map[string]int) int {
	least := 0
	for name, n := range counts {
		if strings.HasPrefix(name, "partition") && !strings.Contains(name, "gateway") && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

const sizingSource = "QLM, section 8; one trace, seeds 1 to 5 pooled, n and n + 1 keep 99 % of interactive and 99 % of batch requests"

// sizingFigures adds what is claimed of a case; 1 if the planner needs more than the
// partition.
func (b *bench) sizingFigures(c *sizing.Case, counts map[string]int, floor int) (above int) {
	ours := counts["planned"]
	f := figures.Figure{Claim: "GPUs for 99/99, " + c.Name, Source: sizingSource, Measured: float64(ours), Unit: "GPUs",
		Note: fmt.Sprintf("bound %d, partition %d, gateway-like %d", floor, partition(counts), counts["partition, gateway-like"])}
	if split, ok := counts["split by class, EDF"]; ok {
		f.Note += fmt.Sprintf(", split by class %d", split)
	}
	limit := partition(counts)
	if f.Asked = fmt.Sprintf("at most %d (the partition)", limit); len(c.Popularity) == 1 {
		limit = 15
		f.Asked = "at most 15"
	}
	f.Holds = figures.If(ours > 0 && ours <= limit)
	b.figures = append(b.figures, f)
	if ours > partition(counts) && len(c.Popularity) > 1 {
		return 1
	}
	return 0
}

// headline adds the sums over the cases with several models.
func headline(b *bench, sums map[string]int, above int) {
	ours := float64(sums["planned"])
	for _, x := range []struct {
		than  string
		count int
		least float64
	}{{"the sized partition", partition(sums), 40}, {"a gateway-like stack", sums["partition, gateway-like"], 0}} {
		saved := 100 * (1 - ours/float64(x.count))
		b.figures = append(b.figures, figures.Figure{Claim: fmt.Sprintf("GPUs for 99/99, sum of %d cases: fewer than %s", mixed, x.than), Source: sizingSource, Note: fmt.Sprintf("%d against %d", sums["planned"], x.count),
			Asked: fmt.Sprintf("at least %g", x.least), Measured: saved, Unit: "%", Holds: figures.If(saved >= x.least)})
	}
	b.figures = append(b.figures, figures.Figure{Claim: fmt.Sprintf("GPUs for 99/99: of %d cases with several models, those in which the plan takes more than the sized partition", mixed), Source: sizingSource,
		Asked: "0", Measured: float64(above), Unit: "cases", Holds: figures.If(above == 0)})
}
