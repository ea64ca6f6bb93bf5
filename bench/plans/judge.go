package main

import (
	"fmt"
	"math"
	"slices"

	"inferplan/bench/table"
)

// What a change may cost: of a value or bound, in all of the CPU time, and of that of a case. Cases of less than
// smallCase seconds are too short to be compared.
const (
	lossAllowed = 1e-6
	cpuInAll    = 1.1
	cpuOfCase   = 2
	smallCase   = 1.0
)

// worse returns how much worse a value is now than before, relatively; negative: better.
func worse(before, now float64, costs bool) float64 {
	if before == now {
		return 0
	}
	if costs {
		before, now = now, before
	}
	return (before - now) / math.Max(math.Abs(before), 1e-12)
}

// complaint returns what a change made worse in a case. If that is nothing, it is empty.
func complaint(before, now *record) string {
	switch {
	case len(now.Errors) > 0:
		return "plan check: " + now.Errors[0]
	case now.None != before.None:
		return fmt.Sprintf("no plan: %v, before %v", now.None, before.None)
	case now.None:
		return ""
	case worse(before.Value, now.Value, now.Costs) > lossAllowed:
		return fmt.Sprintf("value %.8g, before %.8g", now.Value, before.Value)
	case now.Bound == nil != (before.Bound == nil):
		return fmt.Sprintf("has a bound: %v, before %v", now.Bound != nil, before.Bound != nil)
	case now.Bound != nil && worse(*before.Bound, *now.Bound, !now.Costs) > lossAllowed:
		return fmt.Sprintf("bound %.8g, before %.8g", *now.Bound, *before.Bound)
	case now.Seconds > smallCase && now.Seconds > cpuOfCase*before.Seconds:
		return fmt.Sprintf("%.2f s of CPU, before %.2f", now.Seconds, before.Seconds)
	}
	return ""
}

// judge adds a row for each set and a note for each case that is worse, and returns how many are. With before nil
// it shows records alone.
func judge(before map[string]record, list []record, t *table.Table) int {
	t.Columns = []string{"set", "cases", "plans", "proved", "CPU s", "most", "CPU s before", "same bytes", "better", "worse"}
	complaints, seconds, secondsBefore := 0, 0.0, 0.0
	for rest := list; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(r record) bool { return r.Set != rest[0].Set })
		if n < 0 {
			n = len(rest)
		}
		plans, proved, same, better, bad, sum, most, sumBefore := 0, 0, 0, 0, 0, 0.0, 0.0, 0.0
		for i := range rest[:n] {
			now := &rest[i]
			sum, most = sum+now.Seconds, max(most, now.Seconds)
			if !now.None {
				plans++
			}
			if now.Proved {
				proved++
			}
			old, known := before[now.Case]
			if !known {
				continue
			}
			sumBefore += old.Seconds
			if now.SHA256 == old.SHA256 {
				same++
			}
			if !now.None && !old.None && worse(old.Value, now.Value, now.Costs) < -lossAllowed {
				better++
			}
			if text := complaint(&old, now); text != "" {
				bad++
				t.Note("%s: %s", now.Case, text)
			}
		}
		t.Add(rest[0].Set, n, plans, proved, fmt.Sprintf("%.1f", sum), fmt.Sprintf("%.2f", most), fmt.Sprintf("%.1f", sumBefore), same, better, bad)
		complaints, seconds, secondsBefore, rest = complaints+bad, seconds+sum, secondsBefore+sumBefore, rest[n:]
	}
	if before != nil {
		t.Note("CPU in all: %.1f s, before %.1f s", seconds, secondsBefore)
		if seconds > cpuInAll*secondsBefore {
			complaints++
			t.Note("more than %.2f times the CPU time in all", cpuInAll)
		}
	}
	return complaints
}
