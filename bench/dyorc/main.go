package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"inferplan/policy/workflow"
)

type bench struct {
	trace  trace
	verify bool
}

func main() {
	data := flag.String("data", "/work/shared/data", "")
	verify := flag.Bool("verify", false, "")
	devices := flag.Int("d", 32, "")
	gb := flag.Float64("m", 40, "")
	app := flag.String("app", "DEBATE", "")
	rps := flag.Float64("rps", 6, "")
	pols := flag.String("p", "greedy,dyorc-early", "")
	seeds := flag.String("seeds", "1", "")
	instant := flag.Bool("instant", false, "")
	mins := 30; flag.IntVar(&mins, "min", 30, ""); flag.Parse()
	tr, err := readTrace(*data)
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	b := &bench{trace: tr, verify: *verify}
	sc := &scene{Name: *app, Devices: *devices, Gigabytes: *gb, Minutes: mins, Warmup: 300 * time.Second}
	switch *app {
	case "GILL":
		sc.Rates.rps[0] = *rps
	case "KC":
		sc.Rates.rps[1] = *rps
	case "DEBATE":
		sc.Rates.rps[2] = *rps
	default:
		sc.Rates.rps = [3]float64{*rps / 3, *rps / 3, *rps / 3}
	}
	for _, s := range strings.Split(*seeds, ",") {
		seed, _ := strconv.ParseUint(s, 10, 64)
		for _, name := range strings.Split(*pols, ",") {
			opt, err := workflow.Named(name)
			if err != nil {
				fmt.Println(err)
				os.Exit(2)
			}
			var resident [][]int32
			if opt.Static {
				o, _ := workflow.Named("dyorc-early")
				r, err := b.play(context.Background(), sc, o, seed, nil, false)
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				resident = r.resident
			}
			start := time.Now()
			r, err := b.play(context.Background(), sc, opt, seed, resident, *instant)
			if err != nil {
				fmt.Println(name, err)
				os.Exit(1)
			}
			fmt.Printf("%-8s %5.1f %-16s n %6d mean %7.3f p99 %7.3f bound %.3f loads %6.1f batch %.2f run %.3f load %.3f both %.3f  %.1fs\n", *app, *rps, name, r.Requests, r.Mean, r.P99, r.Bound, r.Loads, r.Batch, r.Run, r.Load, r.Both, time.Since(start).Seconds())
		}
	}
}
