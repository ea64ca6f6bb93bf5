package sizing

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"inferplan/bench/qlm/fleet"
	"inferplan/planner/queue/deploy"
)

func TestExplore(t *testing.T) {
	d, err := fleet.Open("../../../../shared/data")
	if err != nil {
		t.Skip(err)
	}
	n, _ := strconv.Atoi(os.Getenv("CASE"))
	runs, _ := strconv.Atoi(os.Getenv("RUNS"))
	work, _ := strconv.Atoi(os.Getenv("WORK"))
	for _, spec := range strings.Fields(os.Getenv("FLEETS")) { // n:even:odd
		var v [3]int
		for i, x := range strings.Split(spec, ":") {
			v[i], _ = strconv.Atoi(x)
		}
		for _, params := range strings.Split(os.Getenv("PARAMS"), ";") {
			p, err := Cases[n].Problem(d)
			if err != nil {
				t.Fatal(err)
			}
			p.SearchWork = int64(work)
			p.Policy = Competitors[0].Policy
			if pol := os.Getenv("POLICY"); pol != "" {
				p.Policy.Name = pol
			}
			p.Policy.Params = nil
			if params != "" {
				if err := json.Unmarshal([]byte(params), &p.Policy.Params); err != nil {
					t.Fatal(err)
				}
			}
			x := deploy.Pool{Counts: []int{v[0]}, Caps: [][]int{make([]int, len(p.Models))}}
			for i := range p.Items {
				x.Items = append(x.Items, i)
			}
			for m := range p.Models {
				x.Caps[0][m] = v[1+(m+Cases[n].Odd)%2]
			}
			start := time.Now()
			s, err := deploy.New(p).Judge(context.Background(), &deploy.Layout{Pools: []deploy.Pool{x}}, runs)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s: %.2f %.2f  %v", spec, params, 100*s.Attained(0), 100*s.Attained(1), time.Since(start).Round(time.Millisecond))
		}
	}
}
