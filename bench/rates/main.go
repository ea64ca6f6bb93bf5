package main

import (
	"flag"
	"strings"

	"inferplan/bench/held"
	"inferplan/bench/instrument"
)

func main() {
	h := &tester{Tester: held.Tester{Runs: 10, Seed: 7919, Requests: 20_000}}
	kinds := ""
	instrument.Main(&instrument.Instrument{
		Name: "rates",
		Parts: []instrument.Part{
			{Name: "rates", Title: "What default plans of drawn problems state, and what they hold", Measure: h.rates},
			{Name: "gaps", Title: "One to four devices: gap of default plans to their bounds, in % of the bound", OnRequest: true, Measure: h.gaps},
			{Name: "overload", Title: "Drawn applications beyond their planned rates", OnRequest: true, Measure: h.overload},
		},
		Flags: func(f *flag.FlagSet) {
			f.Uint64Var(&h.first, "first", 46, "parts rates and overload: first drawn problem; the search was tuned on problems 1 to 30, the tests of cascades and queues on 31 to 45")
			f.Uint64Var(&h.last, "last", 60, "parts rates and overload: last drawn problem")
			f.BoolVar(&h.explicit, "flags", true, "part rates: compare pools and applications with explicit flags, too")
			f.StringVar(&kinds, "kinds", "pools,applications,cascades,queues", "part rates: kinds of problems")
		},
		Begin: func(*instrument.Run) error {
			h.kinds = strings.Split(kinds, ",")
			for _, kind := range h.kinds {
				if draws[kind] == nil {
					return instrument.Usagef("-kinds: found %q, expected some of pools, applications, cascades and queues", kind)
				}
			}
			return nil
		},
	})
}
