package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"inferplan/policy/policies"
	"inferplan/sim"
)

func main() {
	dir := os.Getenv("INFERPLAN_DATA")
	pr, err := readProfiles(dir)
	if err != nil {
		panic(err)
	}
	pipes, err := pipelinesOf(pr)
	if err != nil {
		panic(err)
	}
	traces, err := readTraces(dir)
	if err != nil {
		panic(err)
	}
	for _, p := range pipes {
		fmt.Printf("%s cost %.2f capacity %.0f", p.name, p.cost(), p.capacity(64))
		for i := range p.stages {
			s := &p.stages[i]
			fmt.Printf(" (%d, %.1f, %.0f)", s.batch, s.ms[s.batch-1], s.rps())
		}
		for _, t := range traces {
			_, f := t.scaled(p.capacity(64))
			fmt.Printf(" %.4f", f)
		}
		fmt.Println()
		if len(os.Args) > 1 && os.Args[1] != p.name {
			continue
		}
		for _, t := range traces {
			if len(os.Args) > 2 && os.Args[2] != t.name {
				continue
			}
			rates, _ := t.scaled(p.capacity(64))
			rule := &scaling{headroom: 1.1, workers: 64, every: 5 * time.Second, window: 5 * time.Second, hold: 30 * time.Second}
			for range p.stages {
				rule.cold = append(rule.cold, 5*time.Second)
			}
			start := p.want(float64(firstSecond(rates, 1)), rule)
			names := []string{"naive", "nexus", "clipper++", "pard", "feas"}
			if len(os.Args) > 3 {
				names = os.Args[3:]
			}
			for _, name := range names {
				plan := p.deploy(name, nil, rule, start, 1.5*p.capacity(64))
				if err := plan.Validate(); err != nil {
					panic(err)
				}
				tab, err := policies.Compile(plan)
				if err != nil {
					panic(err)
				}
				pol, err := policies.New(plan.Policy, tab)
				if err != nil {
					panic(err)
				}
				began := time.Now()
				res, err := sim.Run(context.Background(), sim.Config{Tables: tab, Policy: pol, Source: newPoisson(rates, 1), Control: policies.Control(tab), NoReport: true, Duration: 1200 * time.Second})
				if err != nil {
					panic(err)
				}
				f := res.Flow
				var inv, run time.Duration
				var tasks int64
				fmt.Printf("%s-%s %-10s N %d bound %.2f drop %.3f late %d events %d wall %.2f dev %.0f |", p.name, t.name, name, f.Requests, 100*(1-float64(f.Bound)/float64(f.Requests)), 100*(1-float64(f.Good)/float64(f.Requests)), f.Late, res.Events, time.Since(began).Seconds(), f.DeviceTime.Seconds())
				for i := range f.Modules {
					m := &f.Modules[i]
					inv += m.Invalid
					run += m.Running
					tasks += m.Requests
					ws := 0
					for s, n := range m.Workers {
						if s < 1200 {
							ws += int(n)
						}
					}
					fmt.Printf(" %.0f/%d", 100*float64(m.Dropped)/float64(f.Dropped+f.Late), ws)
				}
				fmt.Printf(" inv %.2f tasks %d\n", 100*inv.Seconds()/run.Seconds(), tasks)
			}
		}
	}
}
