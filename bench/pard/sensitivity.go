package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"inferplan/bench/figures"
)

// sensitivity prints what the paper's figure 14 shows and adds its figures.
func (s *sheet) sensitivity(w io.Writer) {
	rate := func(name, policy string) float64 {
		m, _ := mean(s.cellsOf(name, policy), func(o *outcome) float64 { return 100 * o.drop() })
		return m
	}
	if len(s.of("sensitivity")) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nsensitivity, lv: dropped or late %%\nSLO ms on tweet\tnexus\tclipper++\tpard\tfeas\n")
	least := math.Inf(1)
	for _, ms := range slos {
		name := fmt.Sprintf("sensitivity/lv-tweet-slo-%d", ms)
		if len(s.cellsOf(name, "pard")) == 0 {
			continue
		}
		fmt.Fprintf(t, "%d\t%.2f\t%.2f\t%.2f\t%.2f\n", ms, rate(name, "nexus"), rate(name, "clipper++"), rate(name, "pard"), rate(name, "feas"))
		least = min(least, rate(name, "nexus")/rate(name, "pard"), rate(name, "clipper++")/rate(name, "pard"))
	}
	spread := func(title string, policies []string) float64 {
		fmt.Fprintf(t, "%s\twiki\ttweet\tazure\n", title)
		worst := 0.0
		most, lowest := map[string]float64{}, map[string]float64{}
		for _, p := range policies {
			fmt.Fprintf(t, "%s", p)
			for _, trace := range []string{"wiki", "tweet", "azure"} {
				x := rate("sensitivity/lv-"+trace, p)
				fmt.Fprintf(t, "\t%.3f", x)
				if lowest[trace] == 0 || x < lowest[trace] {
					lowest[trace] = x
				}
				if most[trace] = max(most[trace], x); lowest[trace] > 0 {
					worst = max(worst, most[trace]/lowest[trace])
				}
			}
			fmt.Fprintln(t)
		}
		return worst
	}
	var q, v []string
	for _, x := range quantiles {
		q = append(q, "pard+lambda="+x)
	}
	for _, x := range windows {
		v = append(v, fmt.Sprintf("pard+window_us=%d", x*1_000_000))
	}
	flat, still := spread("lambda", q), spread("window", v)
	t.Flush()
	s.add(figures.Figure{Claim: "lv on tweet, SLO 200 to 600 ms: least of nexus' and clipper++'s drop rate over pard's", Source: "PARD figure 14b: 1.9 to 5.3", Asked: ">= 1.9", Measured: least, Unit: "ratio", Holds: orPartly(least >= 1.9)})
	s.add(figures.Figure{Claim: "lv, lambda .05 to .5: largest over least drop rate of pard on a trace", Source: "PARD figure 14c", Asked: figures.AskedShown, Measured: flat, Unit: "ratio"})
	s.add(figures.Figure{Claim: "lv, windows of 1 to 7 s: largest over least drop rate of pard on a trace", Source: "PARD figure 14d: 1.03 to 1.06", Asked: "<= 1.063", Measured: still, Unit: "ratio", Holds: figures.If(still <= 1.063)})
}
