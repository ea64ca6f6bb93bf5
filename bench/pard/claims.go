package main

import (
	"fmt"
	"math"
	"slices"

	"inferplan/bench/figures"
)

// claim is a claim of the paper on a policy on lv under tweet (footnote 9): by how
// much its drop rate is above PARD's.
type claim struct {
	policy, source string
	least, most    float64 // of the ratio; 0 for claims on the paper's own load, which are asked of nobody else
}

var ablationClaims = []claim{
	{"back", "§5.3: 1.1 to 3.6 times higher", 1.1, 4.6},
	{"sf", "§5.3: 1.1 to 3.6 times higher", 0, 0},
	{"oc", "§5.3: 2.1 times higher", 2.1, 3.1},
	{"split", "§5.3: 2.6 times higher", 2.6, 3.6},
	{"wcl", "§5.3: 2.8 times higher", 2.8, 3.8},
	{"lower", "§5.3: goodput 6.8 % lower", 0, 0},
	{"upper", "§5.3: 1.3 times higher", 1.3, 2.3},
	{"fcfs", "§5.3: 1.8 times higher", 1.8, 2.8},
	{"lbf", "§5.3: 2.2 times higher", 2.2, 3.2},
	{"hbf", "§5.3: .5 times higher", 0, 0},
	{"instant", "§5.3: 25 % more", 0, 0},
}

// verdict returns whether a ratio is the paper's: yes, partly where it is on the same
// side of 1 by a tenth of the way at least, or no.
func verdict(x, least, most float64) figures.Holds {
	switch {
	case x >= least && x <= most:
		return figures.Yes
	case x-1 >= (least-1)/10:
		return figures.Partly
	}
	return figures.No
}

// orPartly is Yes or Partly.
func orPartly(holds bool) figures.Holds {
	if holds {
		return figures.Yes
	}
	return figures.Partly
}

// claims adds the paper's table, row by row.
func (s *sheet) claims() {
	least, most := math.Inf(1), 0.
	for _, name := range s.of("S0", "S1") {
		if list := s.cellsOf(name, "pard"); len(list) > 0 {
			m, _ := mean(list, (*outcome).drop)
			least, most = min(least, m), max(most, m)
		}
	}
	if most == 0 {
		return
	}
	s.add(figures.Figure{Claim: "drop rate of pard, least over the cases of S0 and S1", Source: "PARD §5.2: 0.12 to 3.6 %", Asked: ">= 0.0012", Measured: least, Unit: "share", Holds: figures.If(least >= .0012)})
	s.add(figures.Figure{Claim: "drop rate of pard, most over the cases of S0 and S1", Source: "PARD §5.2: 0.12 to 3.6 %", Asked: "<= 0.036", Measured: most, Unit: "share", Holds: figures.If(most <= .036)})
	if len(s.of("S0")) == 0 {
		return
	}
	for _, base := range []string{"nexus", "clipper++"} {
		r := s.against(base, "S0")
		if r.n == 0 {
			continue
		}
		s.add(figures.Figure{Claim: "invalid device time of " + base + " over pard's, geometric mean of S0", Source: "PARD §5.2: 1.5 to 62 times", Asked: "1.5 to 62", Measured: r.invalid, Unit: "ratio", Holds: verdict(r.invalid, 1.5, 62)})
		pard := s.against("pard", "S0")
		gain := pard.over / r.over
		s.add(figures.Figure{Claim: "goodput in overloaded windows of pard over " + base + "'s, of the means of S0", Source: "PARD §5.2: 16 to 176 % more", Asked: "1.16 to 2.76", Measured: gain, Unit: "ratio", Holds: verdict(gain, 1.16, 2.76)})
	}
	s.early()
	s.overheads()
	if !slices.Contains(s.asked, "ablations") {
		return
	}
	s.part = "S0,ablations"
	for _, c := range ablationClaims {
		ablation(s, c)
	}
	if r := s.against("feas-hbf", "S0"); r.n > 0 {
		s.add(figures.Figure{Claim: fmt.Sprintf("S0: drop rate of feas-hbf over that of pard, geometric mean of %d cases", r.n), Source: "PARD §5.2, our default beside it", Asked: figures.AskedShown, Measured: r.mean,
			Interval: s.interval("feas-hbf", "S0"), Unit: "ratio"})
	}
}

// ablation adds by how much the drop rate of a policy is above PARD's: in the paper's
// case, and over all cases of S0. Seeds are those that the policy was run with.
func ablation(s *sheet, c claim) {
	asked, holds := figures.AskedShown, func(float64) figures.Holds { return "" }
	if c.least > 0 {
		asked, holds = fmt.Sprintf("%.2g to %.2g", c.least, c.most), func(x float64) figures.Holds { return verdict(x, c.least, c.most) }
	}
	if a, b := s.pairs("S0/lv-tweet", c.policy); len(a) > 0 {
		x, _ := mean(a, (*outcome).drop)
		y, _ := mean(b, (*outcome).drop)
		s.add(figures.Figure{Claim: "S0/lv-tweet: drop rate of " + c.policy + " over pard's", Source: fmt.Sprintf("PARD %s; %d seeds", c.source, len(a)), Asked: asked, Measured: x / y, Unit: "ratio", Holds: holds(x / y)})
	}
	if r := s.against(c.policy, "S0"); r.n > 1 {
		s.add(figures.Figure{Claim: fmt.Sprintf("S0: drop rate of %s over pard's, geometric mean of %d cases", c.policy, r.n), Source: fmt.Sprintf("PARD %s (lv on tweet); here %.2f to %.2f", c.source, r.least, r.most),
			Asked: asked, Measured: r.mean, Unit: "ratio", Holds: holds(r.mean)})
	}
}

// early adds where pard drops on lv.
func (s *sheet) early() {
	first, all := 0., 0.
	for _, trace := range []string{"wiki", "tweet", "azure"} {
		for _, o := range s.cellsOf("S0/lv-"+trace, "pard") {
			first += float64(o.Drops[0] + o.Drops[1])
			all += float64(o.Requests - o.Good)
		}
	}
	if all > 0 {
		s.add(figures.Figure{Claim: "S0, lv: share of pard's drops in the first two modules", Source: "PARD §5.3: 87 %", Asked: ">= 0.8", Measured: first / all, Unit: "share", Holds: figures.If(first/all >= .8)})
	}
}

// overheads adds what the policy costs (PARD, section 5.4). A worker's state of a
// second is three numbers of 8 bytes and the histogram of its module's waits, a
// millisecond a bin and two bytes each. The share of latency takes all CPU time of a
// simulated run, the simulator's own included, over the executions along the path.
func (s *sheet) overheads() {
	longest := slices.Max([]float64{49.9, 54.2, 68.1, 80.3, 73.2})
	kbit := 8 * (24 + 2*math.Ceil(longest)) / 1e3
	s.add(figures.Figure{Claim: "state that a worker sends in a second, computed for the module with the longest batches", Source: "PARD §5.4: < 3.2 kbit/s", Asked: "<= 3.2", Measured: kbit, Unit: "kbit/s", Holds: figures.If(kbit <= 3.2)})
	s.add(figures.Figure{Claim: "control traffic of 1,000 such workers", Source: "PARD §5.4: 0.64 Mbit/s", Asked: "<= 3.2", Measured: kbit, Unit: "Mbit/s", Holds: figures.If(kbit <= 3.2)})
	list := s.cellsOf("S0/lv-tweet", "feas")
	if len(list) == 0 {
		return
	}
	const executions = .0440 + .0542 + .0269 + .0193 + .0803
	cost, _ := mean(list, func(o *outcome) float64 { return o.CPU / float64(o.Requests) / executions })
	s.add(figures.Figure{Claim: "S0/lv-tweet: CPU time of a request under feas, the simulator's included, over the executions along its path", Source: "PARD §5.4: < 0.16 % of the latency", Asked: "<= 0.0016", Measured: cost, Unit: "share", Holds: figures.If(cost <= .0016)})
}
