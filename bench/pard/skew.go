package main

import (
	"fmt"

	"inferplan/bench/figures"
)

// skewed says what clocks that are off cost where deadlines travel as times. As
// what is left of them they cost nothing.
func skewed(s *sheet) {
	for _, policy := range []string{"pard", "feas"} {
		for _, us := range []int{1000, 5000, 20000} {
			rise, n := 0., 0.
			for _, name := range s.of("skew") {
				a, b := s.cellsOf(name, policy), s.cellsOf(name, fmt.Sprintf("%s+skew_us=%d", policy, us))
				if len(a) > 0 && len(a) == len(b) {
					x, _ := mean(a, (*outcome).drop)
					y, _ := mean(b, (*outcome).drop)
					rise, n = rise+100*(y-x), n+1
				}
			}
			if n > 0 {
				s.add(figures.Figure{Claim: fmt.Sprintf("clocks off by up to %d ms, deadlines as times: points of requests more that %s drops than with what is left of them", us/1000, policy),
					Source: "lv, the traces and seeds that were run", Asked: figures.AskedShown, Measured: rise / n, Unit: "points"})
			}
		}
	}
}

// wrong says what profiles that are wrong cost, with times that are learnt and
// without.
func wrong(s *sheet) {
	if len(s.of("trouble")) == 0 {
		return
	}
	for _, by := range []string{"1.2", "1.5"} {
		name := "trouble/lv-tweet-profiles-wrong-" + by
		for _, policy := range []string{"naive", "nexus", "clipper++", "pard", "feas", "feas+learn=0"} {
			if list := s.cellsOf(name, policy); len(list) > 0 {
				x, _ := mean(list, (*outcome).drop)
				s.add(figures.Figure{Claim: fmt.Sprintf("profiles wrong by %s x: drop rate of %s", by, policy), Source: "lv-tweet, workers by the plan's times", Asked: figures.AskedShown, Measured: x, Unit: "share"})
			}
		}
	}
}
