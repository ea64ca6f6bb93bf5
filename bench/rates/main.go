package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"time"

	"inferplan/cputime"
	"inferplan/planner"
	"inferplan/solver/highs"
)

func main() {
	from := flag.Int("from", 1, "")
	to := flag.Int("to", 9, "")
	explicit := flag.String("explicit", "", "few or all")
	verbose := flag.Bool("v", false, "")
	flag.Parse()
	ctx := context.Background()
	h := &held{runs: 5, seed: 7919, attainment: 0.99, requests: 20000}
	for seed := *from; seed <= *to; seed++ {
		p := pools(uint64(seed))
		best, bestName := 0.0, ""
		show := func(name string, values map[string]any) {
			opt := planner.Options{Values: values}
			last := ""
			since := cputime.Used()
			tell := func(u planner.Progress) {
				if *verbose && u.Phase != last {
					fmt.Fprintf(os.Stderr, "   %.2f %s\n", (cputime.Used() - since).Seconds(), last)
					last, since = u.Phase, cputime.Used()
				}
			}
			cpu := cputime.Used()
			res, err := planner.Solve(ctx, p.inputs, opt, highs.Solver{}, tell)
			took := cputime.Used() - cpu
			if err != nil {
				fmt.Printf("%s | %s | %v\n", p.name, name, err)
				return
			}
			rate, err := 0.0, error(nil); if *explicit != "bound" { rate, err = h.rate(ctx, res.Plan) }
			if err != nil {
				fmt.Println(err)
				return
			}
			at, _ := h.attained(ctx, res.Plan, res.Plan.Objective.Value)
			bound := math.NaN()
			if res.Plan.Objective.Bound != nil {
				bound = *res.Plan.Objective.Bound
			}
			fmt.Printf("%s | %-28s | stated %9.4g at 1: %.4f | holds %9.4g | bound %9.4g | gap %.4f | cpu %.2f\n", p.name, name, res.Plan.Objective.Value, at, rate, bound, 1-rate/bound, took.Seconds())
			if rate > best {
				best, bestName = rate, name
			}
		}
		show("default", map[string]any{})
		base := best
		if *explicit == "bound" {
			for _, mp := range []int{1, 2, 3} {
				for _, round := range []string{"slot", "fractional"} {
					show(fmt.Sprint("margin 0 mp ", mp, " ", round), map[string]any{"margin": 0.0, "max-partitions": mp, "gpu-rounding": round})
				}
			}
			continue
		}
		if *explicit != "" {
			for _, margin := range []any{0.0, .1, .2, .4, "auto"} {
				for _, mb := range []int{1, 2, 4, 0} {
					for _, round := range []string{"slot", "fractional"} {
						if *explicit == "few" && (round == "fractional" || mb == 1) {
							continue
						}
						show(fmt.Sprint("margin ", margin, " mb ", mb, " ", round), map[string]any{"margin": margin, "max-batch": mb, "gpu-rounding": round})
					}
				}
				if *explicit == "all" {
					show(fmt.Sprint("margin ", margin, " np"), map[string]any{"margin": margin, "algorithm": "np"})
				}
			}
			fmt.Printf("== %s: default %.5g, best %.5g (%s), %.2f %% above\n", p.name, base, best, bestName, 100*(best/base-1))
		}
	}
	_ = time.Now
	_ = os.Args
}
