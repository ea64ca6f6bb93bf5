package main

import "fmt"

// skewed says what clocks that are off cost where deadlines travel as times. As
// what is left of them they cost nothing.
func (s *sheet) skewed() {
	for _, policy := range []string{"pard", "feas"} {
		for _, us := range []int{1000, 5000, 20000} {
			rise, n := 0., 0.
			for _, name := range s.cases("skew") {
				a, b := s.cellsOf(name, policy), s.cellsOf(name, fmt.Sprintf("%s+skew_us=%d", policy, us))
				if len(a) > 0 && len(a) == len(b) {
					x, _ := mean(a, (*outcome).drop)
					y, _ := mean(b, (*outcome).drop)
					rise, n = rise+y/x-1, n+1
				}
			}
			if n > 0 {
				s.add(figure{Claim: fmt.Sprintf("clocks off by up to %d ms, deadlines as times: rise of the drop rate of %s over that with what is left of them, mean of %v cases", us/1000, policy, n),
					Source: "lv on three traces", Asked: "shown", Measured: rise / n, Unit: "share", Holds: true})
			}
		}
	}
}
