package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"inferplan/bench/figures"
)

// sheet makes tables and figures of what was measured.
type sheet struct {
	have    results
	seeds   int
	asked   []string                  // parts of this run
	part    string                    // parts that the figures to come are of
	command func(parts string) string // that measures them
	figures []figures.Figure
}

// of lists the cases of those of some parts that were asked for. The figures to come are of
// these parts.
func (s *sheet) of(parts ...string) (cases []string) {
	parts = slices.DeleteFunc(parts, func(part string) bool { return !slices.Contains(s.asked, part) })
	for _, part := range parts {
		cases = append(cases, s.cases(part)...)
	}
	s.part = strings.Join(parts, ",")
	return cases
}

// maker measures a part that has no cells.
type maker struct {
	part string
	make func() error
}

// makeParts measures those of the parts that were asked for. Their figures name the part.
func makeParts(s *sheet, list []maker) error {
	for _, m := range list {
		if s.of(m.part); s.part == "" {
			continue
		}
		if err := m.make(); err != nil {
			return err
		}
	}
	return nil
}

// cellsOf are the outcomes of a case under a policy, by seed.
func (s *sheet) cellsOf(name, policy string) []outcome {
	var out []outcome
	for seed := range s.seeds {
		if o, ok := s.have[key(&cell{Case: name, Policy: policy, Seed: uint64(seed + 1)})]; ok {
			out = append(out, o)
		}
	}
	return out
}

// pairs are the outcomes of a case under a policy and under PARD, of the seeds that
// both have.
func (s *sheet) pairs(name, policy string) (a, b []outcome) {
	for seed := range s.seeds {
		x, ok := s.have[key(&cell{Case: name, Policy: policy, Seed: uint64(seed + 1)})]
		y, too := s.have[key(&cell{Case: name, Policy: "pard", Seed: uint64(seed + 1)})]
		if ok && too {
			a, b = append(a, x), append(b, y)
		}
	}
	return a, b
}

// mean is the mean of a value over outcomes, with half the width of its 95 %
// interval (Student); 0 of one.
func mean(list []outcome, value func(*outcome) float64) (m, half float64) {
	n := float64(len(list))
	for i := range list {
		m += value(&list[i]) / n
	}
	if n < 2 {
		return m, 0
	}
	sum := 0.0
	for i := range list {
		sum += (value(&list[i]) - m) * (value(&list[i]) - m)
	}
	t := map[int]float64{2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}[len(list)]
	if t == 0 {
		t = 2
	}
	return m, t * math.Sqrt(sum/(n-1)/n)
}

// cases lists the cases of a part that were measured, in order.
func (s *sheet) cases(part string) []string {
	var out []string
	for k := range s.have {
		name := k[:strings.LastIndex(k[:strings.LastIndex(k, "/")], "/")]
		if strings.HasPrefix(name, part+"/") && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// tables prints the cells of every part.
func (s *sheet) tables(w io.Writer) {
	for _, part := range []string{"S0", "S1", "other", "stress", "trouble"} {
		list := s.cases(part)
		if len(list) == 0 {
			continue
		}
		policies := plain
		if part == "stress" || part == "trouble" {
			policies = append(slices.Clone(plain), "feas+token")
		}
		fmt.Fprintf(w, "\n%s: dropped or late %% (half of the 95 %% interval) / invalid %% / least goodput of 10 s / goodput in overloaded windows\n", part)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "case\tbound")
		for _, p := range policies {
			fmt.Fprintf(t, "\t%s", p)
		}
		fmt.Fprintln(t)
		for _, name := range list {
			fmt.Fprintf(t, "%s", name)
			for i, p := range append([]string{"feas"}, policies...) {
				o := s.cellsOf(name, p)
				if len(o) == 0 {
					fmt.Fprintf(t, "\t")
					continue
				}
				if i == 0 {
					b, _ := mean(o, func(o *outcome) float64 { return 100 * (1 - float64(o.Bound)/float64(o.Requests)) })
					fmt.Fprintf(t, "\t%.2f", b)
					continue
				}
				m, half := mean(o, func(o *outcome) float64 { return 100 * o.drop() })
				inv, _ := mean(o, func(o *outcome) float64 { return 100 * o.Invalid })
				least, _ := mean(o, func(o *outcome) float64 { return o.Min10 })
				over, _ := mean(o, (*outcome).overGoodput)
				fmt.Fprintf(t, "\t%.2f (%.2f) / %.2f / %.2f / %.2f", m, half, inv, least, over)
			}
			fmt.Fprintln(t)
		}
		t.Flush()
	}
	s.ratios(w)
	s.drops(w)
	s.checks()
	s.gains()
	rises(s)
	skewed(s)
	wrong(s)
	s.claims()
}

// ratios prints every policy against PARD over the cases of S0.
func (s *sheet) ratios(w io.Writer) {
	fmt.Fprintf(w, "\nS0 against pard: drop ratio (least / geometric mean / most), invalid ratio, share of the bound: all, overloaded windows\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range append(slices.Clone(plain), ablations...) {
		r := s.against(p, "S0")
		if r.n > 0 {
			fmt.Fprintf(t, "%s\t%.2f / %.3f / %.2f\t%.2f\t%.4f\t%.3f\t%d cases\n", p, r.least, r.mean, r.most, r.invalid, r.share, r.over, r.n)
		}
	}
	t.Flush()
}

// ratio is a policy against PARD over the cases of a part.
type ratio struct {
	n                                       int
	least, mean, most, invalid, share, over float64
}

func (s *sheet) against(policy, part string) ratio {
	r := ratio{least: math.Inf(1)}
	for _, name := range s.cases(part) {
		a, b := s.pairs(name, policy)
		if len(a) == 0 {
			continue
		}
		x, _ := mean(a, (*outcome).drop)
		y, _ := mean(b, (*outcome).drop)
		r.n++
		r.least, r.most, r.mean = min(r.least, x/y), max(r.most, x/y), r.mean+math.Log(x/y)
		x, _ = mean(a, func(o *outcome) float64 { return o.Invalid })
		y, _ = mean(b, func(o *outcome) float64 { return o.Invalid })
		r.invalid += math.Log(max(x, 1e-9) / max(y, 1e-9))
		x, _ = mean(a, (*outcome).share)
		r.share += x
		x, _ = mean(a, (*outcome).overShare)
		r.over += x
	}
	n := float64(r.n)
	r.mean, r.invalid, r.share, r.over = math.Exp(r.mean/n), math.Exp(r.invalid/n), r.share/n, r.over/n
	return r
}

// drops prints where requests are dropped.
func (s *sheet) drops(w io.Writer) {
	fmt.Fprintf(w, "\nS0: share of the drops by module, the last entry late ones, %%\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range s.cases("S0") {
		fmt.Fprintf(t, "%s", name)
		for _, p := range []string{"nexus", "clipper++", "pard", "feas"} {
			list := s.cellsOf(name, p)
			if len(list) == 0 {
				continue
			}
			fmt.Fprintf(t, "\t%s ", p)
			all := float64(list[0].Requests - list[0].Good)
			for _, n := range append(slices.Clone(list[0].Drops), list[0].Late) {
				fmt.Fprintf(t, "%.0f,", 100*float64(n)/all)
			}
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

func (s *sheet) add(f figures.Figure) {
	f.Command = s.command(s.part)
	s.figures = append(s.figures, f)
}

// checks holds bounds and drop rates against the independent implementation.
func (s *sheet) checks() {
	n, bound, drop, counted := 0, 0.0, map[string]float64{}, map[string]int{}
	for _, name := range s.of("S0", "S1") {
		ref, ok := references[name]
		list := s.cellsOf(name, "pard")
		if !ok || len(list) == 0 {
			continue
		}
		n++
		bound = max(bound, math.Abs(100*(1-float64(list[0].Bound)/float64(list[0].Requests))-ref.bound))
		for _, p := range referenced {
			if list := s.cellsOf(name, p); len(list) > 0 {
				counted[p]++
				drop[p] = max(drop[p], math.Abs(100*list[0].drop()/ref.of(p)-1))
			}
		}
	}
	if n == 0 {
		return
	}
	const source = "an independent implementation, seed 1"
	s.add(figures.Figure{Claim: fmt.Sprintf("unavoidable drops, largest difference over %d cases", n), Source: source, Asked: "<= 0.05", Measured: bound, Unit: "points", Holds: figures.If(bound <= .055)})
	for _, p := range referenced {
		if counted[p] < n {
			continue
		}
		f := figures.Figure{Claim: fmt.Sprintf("drop rate of %s, largest relative difference over %d cases", p, n), Source: source, Asked: figures.AskedShown, Measured: drop[p], Unit: "share"}
		if p == "pard" {
			f.Asked, f.Holds = "<= 0.05", figures.If(drop[p] <= .05)
		}
		s.add(f)
	}
}

// gains are the claims about policies.
func (s *sheet) gains() {
	for _, part := range []string{"S0", "S1", "other"} {
		if len(s.of(part)) == 0 {
			continue
		}
		r := s.against("feas", part)
		if r.n == 0 {
			continue
		}
		s.add(figures.Figure{Claim: fmt.Sprintf("%s: drop rate of feas over that of pard, geometric mean of %d cases", part, r.n), Source: "PARD §5.2, our default beside it", Asked: "<= 0.80", Measured: r.mean,
			Interval: s.interval("feas", part), Unit: "ratio", Holds: figures.If(r.mean <= .8)})
		s.add(figures.Figure{Claim: fmt.Sprintf("%s: drop rate of feas over that of pard, worst of %d cases", part, r.n), Source: "PARD §5.2, our default beside it", Asked: "<= 1.02", Measured: r.most, Unit: "ratio", Holds: figures.If(r.most <= 1.02)})
		share := figures.Figure{Claim: part + ": share of the bound of feas, mean", Source: "clairvoyant greedy", Asked: figures.AskedShown, Measured: r.share, Unit: "share"}
		if part == "S0" {
			share.Asked, share.Holds = ">= 0.9975", figures.If(r.share >= .9975)
		}
		s.add(share)
		p := s.against("pard", part)
		s.add(figures.Figure{Claim: part + ": share of the bound of pard, mean", Source: "clairvoyant greedy", Asked: figures.AskedShown, Measured: p.share, Unit: "share"})
		for _, base := range []string{"nexus", "clipper++"} {
			if x := s.against(base, part); x.n > 0 {
				s.add(figures.Figure{Claim: fmt.Sprintf("%s: drop rate of %s over that of pard, geometric mean", part, base), Source: "PARD §5.2: 1.6 to 16.7 times", Asked: ">= 1.6", Measured: x.mean, Unit: "ratio",
					Holds: orPartly(x.least >= 1.6)})
			}
		}
	}
	if len(s.of("stress")) == 0 {
		return
	}
	for _, p := range []string{"feas", "feas+token"} {
		if r := s.against(p, "stress"); r.n > 0 {
			s.add(figures.Figure{Claim: fmt.Sprintf("stress, 1.0 to 2.0 times the capacity: drop rate of %s over that of pard, worst of %d cases", p, r.n), Source: "our default", Asked: "<= 1.02", Measured: r.most, Unit: "ratio", Holds: figures.If(r.most <= 1.02)})
		}
	}
}

// interval is the 95 % interval over the seeds of the geometric mean of a policy's
// drop rate over PARD's. If there is one seed, it returns nil.
func (s *sheet) interval(policy, part string) *[2]float64 {
	var means []outcome
	for seed := range uint64(s.seeds) {
		one := &sheet{have: results{}, seeds: 1}
		for _, name := range s.cases(part) {
			for _, p := range []string{policy, "pard"} {
				if o, ok := s.have[key(&cell{Case: name, Policy: p, Seed: seed + 1})]; ok {
					one.have[key(&cell{Case: name, Policy: p, Seed: 1})] = o
				}
			}
		}
		if r := one.against(policy, part); r.n == len(s.cases(part)) {
			means = append(means, outcome{Min10: r.mean})
		}
	}
	m, half := mean(means, func(o *outcome) float64 { return o.Min10 })
	if half == 0 {
		return nil
	}
	return &[2]float64{m - half, m + half}
}

// print prints the figures.
func (s *sheet) print(w io.Writer) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range s.figures {
		fmt.Fprintf(t, "%s\tasked %s\tmeasured %.4g %s\tholds %v\n", f.Claim, f.Asked, f.Measured, f.Unit, f.Holds)
	}
	t.Flush()
}
