package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"inferplan/executor/workers"
)

// parseCPUs reads a list such as 0-3,8.
func parseCPUs(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	const most = 4096
	var out []int
	listed := map[int]bool{}
	for part := range strings.SplitSeq(s, ",") {
		firstText, lastText, isRange := strings.Cut(part, "-")
		firstCPU, err := strconv.Atoi(firstText)
		to := firstCPU
		if err == nil && isRange {
			to, err = strconv.Atoi(lastText)
		}
		if err != nil || firstCPU < 0 || to < firstCPU || to >= most {
			return nil, fmt.Errorf("found %q in %q, expected CPU numbers such as 0-3,8", part, s)
		}
		for c := firstCPU; c <= to; c++ {
			if listed[c] {
				return nil, fmt.Errorf("CPU %d twice in %q", c, s)
			}
			listed[c] = true
			out = append(out, c)
		}
	}
	return out, nil
}

// parsePlaces reads --place KIND=CPUS[/THREADS].
func parsePlaces(args []string) (map[string]workers.CPUPlace, error) {
	out := map[string]workers.CPUPlace{}
	for _, a := range args {
		kind, rest, ok := strings.Cut(a, "=")
		list, threads, perDevice := strings.Cut(rest, "/")
		if !ok || kind == "" || list == "" {
			return nil, fmt.Errorf("--place %q: expected KIND=CPUS, such as cpu-a=0-3, or KIND=CPUS/CPUS_PER_DEVICE", a)
		}
		p := workers.CPUPlace{}
		var err error
		if p.CPUs, err = parseCPUs(list); err != nil {
			return nil, fmt.Errorf("--place %s: %w", kind, err)
		}
		if perDevice {
			if p.Threads, err = strconv.Atoi(threads); err != nil || p.Threads < 1 {
				return nil, fmt.Errorf("--place %s: found %q CPUs per device, expected at least 1", kind, threads)
			}
		}
		if _, twice := out[kind]; twice {
			return nil, fmt.Errorf("--place %s: given twice", kind)
		}
		out[kind] = p
	}
	return out, nil
}

// parseRemote reads --remote KIND=N. If the only argument is "all", it returns true and no map.
func parseRemote(args []string) (remote map[string]int, all bool, err error) {
	if slices.Equal(args, []string{"all"}) {
		return nil, true, nil
	}
	out := map[string]int{}
	for _, a := range args {
		kind, n, ok := strings.Cut(a, "=")
		count, err := strconv.Atoi(n)
		if !ok || kind == "" || err != nil || count < 1 {
			return nil, false, fmt.Errorf("--remote %q: expected KIND=N, such as L4=2, or all alone", a)
		}
		if _, twice := out[kind]; twice {
			return nil, false, fmt.Errorf("--remote %s: given twice", kind)
		}
		out[kind] = count
	}
	return out, false, nil
}
